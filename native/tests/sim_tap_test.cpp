// SPDX-License-Identifier: Apache-2.0
#include "sim/tap.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "pulse/opcode_traits.hpp"
#include "pulse/packet_parser.hpp"
#include "sim/random.hpp"
#include "sim_world.hpp"

namespace {

using pulse::PacketBatch;
using pulse::PacketRecord;
using pulse::sim::PacketRun;
using pulse::sim::Picoseconds;
using pulse::sim::Random;
using pulse::sim::SentStamp;
using pulse::sim::Sighting;
using pulse::sim::Tap;
using pulse::sim::TapConfig;
using pulse::sim::TapMode;
using pulse::sim::Verb;
using pulse::sim::WireStyle;
using pulse::test::data_run;
using pulse::test::kEnds;
using pulse::test::kNics;
using pulse::test::response_run;

constexpr std::int64_t kEpochNs = 1'700'000'000'000'000'000;
constexpr Picoseconds kUs = 1'000'000;

TapConfig config_of(TapMode mode = TapMode::all) {
  TapConfig config;
  config.mode = mode;
  config.clock = {{0, kEpochNs}};
  config.seed = 11;
  return config;
}

Sighting sighting(const PacketRun& run, Picoseconds first_ps, Picoseconds spacing_ps, bool sent) {
  return {run, first_ps, spacing_ps, first_ps, sent};
}

// Messages both ways, cut into runs that overlap in time, with responses between them; by first_ps.
std::vector<Sighting> busy_tap(std::uint64_t seed, int messages, std::uint32_t pause_ps = 0) {
  Random random(seed);
  std::vector<Sighting> seen;
  std::uint64_t index[2] = {0, 0};
  Picoseconds now_ps = 0;
  for (int message = 0; message < messages; ++message) {
    const std::uint32_t end = random.below(2);
    const std::uint32_t packets = 1 + random.below(40);
    constexpr Verb kVerbs[] = {Verb::write, Verb::write_imm, Verb::send};
    PacketRun run = data_run(kVerbs[random.below(3)], (packets - 1) * 4096 + random.below(4096), packets);
    for (std::uint32_t offset = 0; offset < packets; offset += run.count) {
      run.end = end;
      run.offset = offset;
      run.count = 1 + random.below(packets - offset);
      run.index = index[end];
      index[end] += run.count;
      seen.push_back(sighting(run, now_ps, 80'000 + random.below(40'000), end == 0));
      seen.back().queued_ps -= random.below(3'000'000);
      now_ps += run.count * Picoseconds{60'000};
    }
    PacketRun response = response_run(random.chance(0.1) ? Verb::cnp : Verb::acknowledge, index[end], 0x1f, 1);
    response.end = 1 - end;
    seen.push_back(sighting(response, now_ps, 0, end == 1));
    // Now and then the next message is seen at the same time.
    now_ps += random.below(4) * Picoseconds{random.below(700'000)} + Picoseconds{random.below(10) == 0 ? pause_ps : 0};
  }
  return seen;
}

std::uint64_t packets_in(const std::vector<Sighting>& seen) {
  std::uint64_t count = 0;
  for (const Sighting& entry : seen) {
    count += entry.run.count;
  }
  return count;
}

struct Captured {
  PacketBatch batch;
  std::uint64_t lost = 0;
};

Captured capture(const TapConfig& config, const std::vector<Sighting>& seen) {
  Captured captured;
  Tap tap(config, {}, kNics, kEnds);
  tap.expand(seen, 0, captured.batch);
  tap.finish(captured.batch);
  captured.lost = tap.lost();
  return captured;
}

// The same through calls of `step` sightings each, every one handed over some calls after those that it precedes.
Captured capture_in_parts(const TapConfig& config, std::vector<Sighting> seen, std::size_t step) {
  Captured captured;
  Tap tap(config, {}, kNics, kEnds);
  while (!seen.empty()) {
    const std::size_t count = std::min(step, seen.size());
    const std::vector<Sighting> part(seen.rbegin(), seen.rbegin() + static_cast<std::ptrdiff_t>(count));
    seen.resize(seen.size() - count);
    tap.expand(part, 0, captured.batch);
  }
  tap.finish(captured.batch);
  captured.lost = tap.lost();
  return captured;
}

Captured capture_in_order(const TapConfig& config, const std::vector<Sighting>& seen, std::size_t step) {
  Captured captured;
  Tap tap(config, {}, kNics, kEnds);
  for (std::size_t at = 0; at < seen.size(); at += step) {
    const std::size_t count = std::min(step, seen.size() - at);
    const bool ends = at + count == seen.size();
    tap.expand(std::span(seen).subspan(at, count), ends ? seen.back().first_ps : seen[at + count].first_ps,
               captured.batch);
  }
  tap.finish(captured.batch);
  captured.lost = tap.lost();
  return captured;
}

bool same(const Captured& a, const Captured& b) {
  if (a.batch.size() != b.batch.size() || a.lost != b.lost) {
    return false;
  }
  for (std::size_t index = 0; index < a.batch.size(); ++index) {
    if (a.batch.ns()[index] != b.batch.ns()[index] || a.batch.wire_bytes()[index] != b.batch.wire_bytes()[index] ||
        pulse::test::bytes_of(a.batch, index) != pulse::test::bytes_of(b.batch, index)) {
      return false;
    }
  }
  return true;
}

std::vector<PacketRecord> parsed(const PacketBatch& batch) {
  std::vector<PacketRecord> records(batch.size());
  pulse::parse_batch(batch, records);
  for (std::size_t index = 0; index < records.size(); ++index) {
    CHECK_EQ(records[index].outcome, static_cast<std::uint8_t>(pulse::ParseOutcome::roce));
    records[index].ns = batch.ns()[index];
  }
  return records;
}

bool is_sorted(const PacketBatch& batch) { return std::is_sorted(batch.ns().begin(), batch.ns().end()); }

// Every feature that draws or delays, at once.
TapConfig rough_config(TapMode mode) {
  TapConfig config = config_of(mode);
  config.sent_stamp = SentStamp::copy;
  config.copy_delay_ns = 700;
  config.copy_jitter_ns = 400;
  config.stamp_noise_ns = 300;
  config.loss_probability = 0.01;
  config.mean_loss_packets = 3;
  config.sample_shift = 2;
  config.clock = {{0, kEpochNs}, {60'000'000, kEpochNs + 60'006'000}, {60'000'000, kEpochNs + 50'000'000}};
  return config;
}

TEST("a run becomes its packets at their spacing, in the time of the clock") {
  const auto captured = capture(config_of(), {sighting(data_run(Verb::write, 3 * 4096, 3), 5 * kUs, 83'000, true)});
  CHECK_EQ(captured.batch.size(), 3U);
  CHECK_EQ(captured.batch.ns()[0], kEpochNs + 5000);
  CHECK_EQ(captured.batch.ns()[1], kEpochNs + 5083);
  CHECK_EQ(captured.batch.ns()[2], kEpochNs + 5166);
  const auto records = parsed(captured.batch);
  CHECK_EQ(records[0].psn, 0xfffffeU);
  CHECK_EQ(records[2].psn, 0U);
  CHECK_EQ(records[2].opcode, pulse::operation::kWriteLast);
}

TEST("packets of both directions come in the order of their stamps, none missing") {
  const auto seen = busy_tap(3, 200);
  const auto captured = capture(config_of(), seen);
  CHECK_EQ(captured.batch.size(), packets_in(seen));
  CHECK(is_sorted(captured.batch));
}

TEST("how and in which order sightings are handed over does not change a byte") {
  // Lasts far longer than the lead of a copy, so that packets are given between the calls too.
  const auto seen = busy_tap(4, 300, 4'000'000'000);
  for (const TapMode mode : {TapMode::all, TapMode::steered, TapMode::sampled}) {
    for (const double poll_interval_ns : {0.0, 20'000.0}) {
      TapConfig config = rough_config(mode);
      config.poll_interval_ns = poll_interval_ns;
      const auto whole = capture(config, seen);
      CHECK(whole.batch.size() > 100);
      CHECK(same(whole, capture_in_order(config, seen, 1)));
      CHECK(same(whole, capture_in_order(config, seen, 7)));
      CHECK(same(whole, capture_in_parts(config, seen, 5)));
      config.sent_stamp = SentStamp::wire;
      CHECK(same(capture(config, seen), capture_in_order(config, seen, 3)));
    }
  }
}

TEST("a packet is given as soon as nothing can come before it any more, and not sooner") {
  PacketBatch batch;
  Tap tap(config_of(), {}, kNics, kEnds);
  const std::vector<Sighting> seen = {sighting(data_run(Verb::write, 4 * 4096, 4), 1 * kUs, 1 * kUs, true)};
  tap.expand(seen, 3 * kUs, batch);
  CHECK_EQ(batch.size(), 2U);  // what passed before 3 us
  tap.expand({}, 3 * kUs + 1, batch);
  CHECK_EQ(batch.size(), 2U);  // a received packet may still show the same nanosecond
  tap.expand({}, 3 * kUs + 1000, batch);
  CHECK_EQ(batch.size(), 3U);
  tap.finish(batch);
  CHECK_EQ(batch.size(), 4U);
}

TEST("a steered tap gives what remains of all packets without the middle ones") {
  const auto seen = busy_tap(5, 300);
  const auto all = parsed(capture(config_of(), seen).batch);
  const auto steered = parsed(capture(config_of(TapMode::steered), seen).batch);
  std::size_t at = 0;
  for (const PacketRecord& record : all) {
    if (pulse::opcode_traits(record.opcode).place == pulse::MessagePlace::middle) {
      continue;
    }
    CHECK(at < steered.size());
    CHECK_EQ(steered[at].ns, record.ns);
    CHECK_EQ(steered[at].opcode, record.opcode);
    CHECK_EQ(steered[at].psn, record.psn);
    CHECK(steered[at].src == record.src);
    ++at;
  }
  CHECK_EQ(at, steered.size());
  CHECK(at < all.size());
}

TEST("a sampled tap takes one packet in 2^shift, at unchanged stamps") {
  const auto seen = busy_tap(6, 4000);
  TapConfig config = config_of(TapMode::sampled);
  const auto all = capture(config_of(), seen);
  CHECK(same(all, capture(config, seen)));
  config.sample_shift = 3;
  const auto sampled = capture(config, seen);
  const double expected = static_cast<double>(packets_in(seen)) / 8;
  CHECK(std::abs(static_cast<double>(sampled.batch.size()) - expected) < 5 * std::sqrt(expected));
  CHECK(std::includes(all.batch.ns().begin(), all.batch.ns().end(), sampled.batch.ns().begin(),
                      sampled.batch.ns().end()));
  CHECK_EQ(sampled.lost, 0U);
}

TEST("sent packets stay unseen when they are not copied to the tap") {
  TapConfig config = config_of();
  config.sent_stamp = SentStamp::none;
  for (const PacketRecord& record : parsed(capture(config, busy_tap(7, 50)).batch)) {
    CHECK_EQ(record.dest_qpn, 0x456U);
  }
}

TEST("a copy is stamped after the NIC took the packet up, late by delay and jitter, and keeps its order") {
  TapConfig config = config_of();
  config.sent_stamp = SentStamp::copy;
  config.copy_delay_ns = 500;
  const PacketRun run = data_run(Verb::write, 3 * 4096, 3);
  // Taken up at 10 us; a shaper holds the packets back until 100 us.
  Sighting shaped{run, 100 * kUs, 80'000, 10 * kUs, true};
  const auto exact = capture(config, {shaped});
  CHECK_EQ(exact.batch.ns()[0], kEpochNs + 10'500);
  CHECK_EQ(exact.batch.ns()[2], kEpochNs + 10'660);

  config.copy_jitter_ns = 1000;
  PacketRun longer = data_run(Verb::write, 5000 * 4096, 5000);
  const auto jittered = parsed(capture(config, {sighting(longer, 0, 10 * kUs, true)}).batch);
  double excess_ns = 0;
  for (std::size_t index = 0; index < jittered.size(); ++index) {
    const auto late_ns = jittered[index].ns - kEpochNs - 500 - static_cast<std::int64_t>(index) * 10'000;
    CHECK(late_ns >= 0);
    CHECK_EQ(jittered[index].psn, (0xfffffeU + index) & 0xffffffU);
    excess_ns += static_cast<double>(late_ns);
  }
  CHECK(std::abs(excess_ns / 5000 - 1000) < 100);
}

TEST("copies of one end keep their order, though a later run was taken up before the former had passed") {
  TapConfig config = config_of();
  config.sent_stamp = SentStamp::copy;
  PacketRun second = data_run(Verb::write, 3 * 4096, 3);
  second.index = 3;
  const auto records = parsed(capture(config, {{data_run(Verb::write, 3 * 4096, 3), 50 * kUs, 10 * kUs, 0, true},
                                               {second, 90 * kUs, 10 * kUs, 1 * kUs, true}})
                                  .batch);
  for (std::size_t index = 0; index < records.size(); ++index) {
    CHECK_EQ(records[index].psn, (0xfffffeU + index) & 0xffffffU);
  }
  CHECK_EQ(records[3].ns, kEpochNs + 20'000);
}

TEST("noise moves stamps, but those of a direction never run backwards") {
  TapConfig config = config_of();
  config.stamp_noise_ns = 500;
  const auto seen = busy_tap(8, 500);
  const auto exact = capture(config_of(), seen);
  const auto noisy = capture(config, seen);
  CHECK(is_sorted(noisy.batch));
  CHECK_EQ(noisy.batch.size(), exact.batch.size());
  CHECK(!std::equal(noisy.batch.ns().begin(), noisy.batch.ns().end(), exact.batch.ns().begin()));
}

TEST("across a step back of the clock the order stays that of true time") {
  TapConfig config = config_of();
  config.clock = {{0, kEpochNs}, {500'000, kEpochNs + 500'000}, {500'000, kEpochNs + 100'000}};
  config.stamp_noise_ns = 50;
  const auto seen = busy_tap(9, 400);
  const auto batch = capture(config, seen).batch;
  CHECK_EQ(batch.size(), packets_in(seen));
  int steps = 0;
  for (std::size_t index = 1; index < batch.size(); ++index) {
    steps += batch.ns()[index] < batch.ns()[index - 1] ? 1 : 0;
  }
  CHECK_EQ(steps, 1);
}

TEST("software stamps lie behind polls, a few hundred nanoseconds apart") {
  TapConfig config = config_of();
  config.poll_interval_ns = 50'000;
  const PacketRun run = data_run(Verb::write, 20 * 4096, 20);
  const auto batch = capture(config, {sighting(run, 0, 83'000, false)}).batch;
  CHECK_EQ(batch.size(), 20U);
  int polls = 0;
  for (std::size_t index = 1; index < batch.size(); ++index) {
    const std::int64_t gap_ns = batch.ns()[index] - batch.ns()[index - 1];
    CHECK(gap_ns >= 200);
    polls += gap_ns > 401 ? 1 : 0;
    CHECK(gap_ns <= 401 || gap_ns > 40'000);
  }
  CHECK(polls <= 1);
  CHECK(batch.ns()[0] > kEpochNs && batch.ns()[0] <= kEpochNs + 52'000);
}

TEST("a receive loop that is too slow loses packets and counts them, and its stamps stay bounded") {
  TapConfig config = config_of();
  config.poll_interval_ns = 50'000;
  const auto captured = capture(config, {sighting(data_run(Verb::write, 100'000 * 4096, 100'000), 0, 83'000, false)});
  CHECK(captured.lost > 10'000);
  CHECK_EQ(captured.batch.size() + captured.lost, 100'000U);
  CHECK(captured.batch.ns().back() < kEpochNs + 8'300'000 + 4096 * 400 + 60'000);
}

TEST("losses come at their rate, in bursts, and are counted") {
  TapConfig config = config_of();
  config.loss_probability = 0.002;
  config.mean_loss_packets = 10;
  const std::uint32_t packets = 200'000;
  const auto captured = capture(config, {sighting(data_run(Verb::write, packets * 4096, packets), 0, 83'000, true)});
  CHECK_EQ(captured.batch.size() + captured.lost, packets);
  const double lost = static_cast<double>(captured.lost);
  CHECK(lost > 0.8 * 0.0196 * packets && lost < 1.2 * 0.0196 * packets);
  int bursts = 0;
  const auto records = parsed(captured.batch);
  for (std::size_t index = 1; index < records.size(); ++index) {
    bursts += ((records[index].psn - records[index - 1].psn) & 0xffffffU) > 1 ? 1 : 0;
  }
  CHECK(bursts > 300 && bursts < 500);
  config.loss_probability = 1;
  CHECK_EQ(capture(config, busy_tap(1, 5)).batch.size(), 0U);
}

TEST("another seed draws differently, the same one alike") {
  const auto seen = busy_tap(10, 100);
  TapConfig config = rough_config(TapMode::all);
  const auto once = capture(config, seen);
  CHECK(same(once, capture(config, seen)));
  config.seed = 12;
  CHECK(!same(once, capture(config, seen)));
}

}  // namespace
