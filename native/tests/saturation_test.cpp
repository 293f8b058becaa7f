// SPDX-License-Identifier: Apache-2.0
//
// Counts narrower than what they might have to count: each stays at its largest value, or what it would
// have counted is told apart. 24-bit PSNs and 16-bit life numbers wrap by their nature; psn_test.cpp has the first.
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "pulse/meter.hpp"
#include "pulse/saturating.hpp"
#include "pulse/window_series.hpp"
#include "pulse/window_store.hpp"

namespace {

constexpr std::uint8_t kWriteFirst = 0x06;
constexpr std::uint8_t kWriteMiddle = 0x07;
constexpr std::uint8_t kWriteOnly = 0x0a;
constexpr std::uint32_t kMax32 = std::numeric_limits<std::uint32_t>::max();

pulse::PacketRecord packet(std::int64_t ns, std::uint8_t opcode, std::uint32_t qpn, std::uint32_t psn) {
  pulse::PacketRecord record{};
  record.ns = ns;
  record.dst[15] = 2;
  record.opcode = opcode;
  record.dest_qpn = qpn;
  record.psn = psn & 0xffffffU;
  record.payload_bytes = 900;
  record.family = 4;
  return record;
}

void take(pulse::Meter& meter, const pulse::PacketRecord& record) { meter.update(std::span(&record, 1)); }

TEST("a sum stops at the largest value") {
  std::uint32_t count = kMax32 - 3;
  pulse::add_saturating(count, 3);
  CHECK_EQ(count, kMax32);
  pulse::add_saturating(count, 1);
  CHECK_EQ(count, kMax32);
}

TEST("missing PSNs beyond 32 bits are the largest count") {
  constexpr std::uint32_t kJump = 1U << 22;
  pulse::Meter meter(pulse::MeterConfig{});
  for (std::uint32_t i = 0; i < 1100; ++i) take(meter, packet(i, kWriteMiddle, 1, i * kJump));
  const pulse::Interval interval = meter.cut(0, 2000);
  CHECK_EQ(interval.flows[0].gap_psns, kMax32);
  std::uint64_t told = 0;
  for (const auto& event : interval.events) told += event.count;
  CHECK_EQ(told, std::uint64_t{1099} * (kJump - 1));
}

TEST("packets of a message that never ends stop at the largest count, in runs and out of them") {
  pulse::HotFlow flow;
  flow.in_run = true;
  flow.message.packets = kMax32 - 4;
  flow.data_packets = 10;
  flow.end_run();
  CHECK_EQ(flow.message.packets, kMax32);

  pulse::MessageTracker tracker;
  pulse::OpenMessage open = flow.message;
  open.flags = pulse::kMessageNoEnd;
  std::vector<pulse::OpenMessage> done;
  const pulse::OpcodeTraits traits = pulse::opcode_traits(kWriteMiddle);
  tracker.on_packet(open, {1, open.last + 1, pulse::Sight::next, traits, kWriteMiddle, 900, 0, 0, 0}, {}, done);
  CHECK_EQ(open.packets, kMax32);
}

TEST("a gap inside a message stops at four seconds") {
  pulse::Meter meter(pulse::MeterConfig{});
  take(meter, packet(0, kWriteFirst, 1, 0));
  take(meter, packet(60'000'000'000, kWriteMiddle, 1, 1));
  CHECK_EQ(meter.finish(0, 60'000'000'001).messages[0].longest_gap_ns, kMax32);
}

TEST("gaps that overflow 16 bits come out whole") {
  constexpr std::uint32_t kPackets = 200'000;
  pulse::Meter meter(pulse::MeterConfig{});
  for (std::uint32_t i = 0; i < kPackets; ++i) take(meter, packet(i * 100, i == 0 ? kWriteFirst : kWriteMiddle, 1, i));
  std::uint64_t gaps = 0;
  for (const auto& cell : meter.cut(0, kPackets * 100).histograms) {
    if (cell.kind == static_cast<std::uint8_t>(pulse::HistogramKind::gap_ns)) gaps += cell.count;
  }
  CHECK_EQ(gaps, kPackets - 1U);
}

TEST("packets beyond what an interval can count are told, and the next interval counts anew") {
  pulse::MeterConfig config;
  config.max_packets = 100;
  pulse::Meter meter(config);
  for (std::uint32_t i = 0; i < 250; ++i) take(meter, packet(i, kWriteOnly, 1, i));
  const pulse::Interval full = meter.cut(0, 250);
  CHECK_EQ(full.flows[0].packets, 100U);
  CHECK_EQ(full.counters.packets_lost, 150U);
  take(meter, packet(300, kWriteOnly, 1, 250));
  const pulse::Interval next = meter.cut(250, 400);
  CHECK_EQ(next.flows[0].packets, 1U);
  CHECK_EQ(next.counters.packets_lost, 0U);
  bool refused = false;
  config.max_packets = kMax32;
  try {
    pulse::Meter impossible(config);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

TEST("when flow numbers are used up none is used twice") {
  pulse::MeterConfig config;
  config.first_flow = pulse::kNoFlow - 2;
  pulse::Meter meter(config);
  for (std::uint32_t qpn = 0; qpn < 5; ++qpn) take(meter, packet(qpn, kWriteOnly, qpn, 0));
  take(meter, packet(9, kWriteOnly, 1, 1));  // of a flow that has a number
  const pulse::Interval interval = meter.cut(0, 10);
  CHECK_EQ(interval.flows.size(), 2U);
  CHECK_EQ(interval.flows[1].flow, pulse::kNoFlow - 1);
  CHECK_EQ(interval.flows[1].packets, 2U);
  CHECK_EQ(interval.counters.flows_lost, 3U);
  CHECK_EQ(interval.counters.packets_lost, 3U);
}

TEST("a window of more than 32 bits comes back whole") {
  pulse::WindowStore store(1, 1 << 12);
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 40;
  store.append(0, 7, kBytes, kMax32);
  store.append(0, 8, 5, 1);
  std::vector<pulse::Window> windows;
  store.take(0, windows);
  CHECK_EQ(windows.size(), 2U);
  CHECK_EQ(windows[0].bytes, kBytes);
  CHECK_EQ(windows[0].packets, kMax32);
}

TEST("sums of pieces that 32 bits cannot hold stay apart") {
  pulse::WindowStore store(1, 64);  // one chunk: everything that can be joined is
  std::uint64_t packets = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    store.append(0, i * 1000, 100 + static_cast<std::uint64_t>(i * i % 977), 1U << 30);
    packets += 1U << 30;
  }
  std::vector<pulse::Window> windows;
  store.take(0, windows);
  std::uint64_t kept = 0;
  for (const pulse::Window& window : windows) kept += window.packets;
  CHECK(store.lost() != 0 ? kept < packets : kept == packets);
  CHECK(kept > kMax32);
}

}  // namespace
