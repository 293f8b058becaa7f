// SPDX-License-Identifier: Apache-2.0
//
// Hostile packets: any opcode, PSN and syndrome, times that stand still, go back and jump, in a meter with little
// room. Sums come out as they went in; and the short way from headers, whole batches and cuts says the same as
// records taken one by one.
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <source_location>
#include <span>
#include <vector>

#include "fuzz_input.hpp"
#include "pulse/meter.hpp"
#include "pulse/packet_parser.hpp"
#include "pulse/window_series.hpp"

namespace {

using pulse::fuzz::Input;
using pulse::fuzz::require;

constexpr std::size_t kUdpAt = 14 + 20;
constexpr std::size_t kBthAt = kUdpAt + 8;
constexpr std::size_t kExtensionAt = kBthAt + 12;
constexpr std::size_t kSnap = kExtensionAt + 28;

pulse::MeterConfig config_of(Input& input) {
  const std::uint8_t choice = input.u8();
  pulse::MeterConfig config;
  config.window_ns = choice % 4 == 3 ? 100 : 8'000;
  config.burst_gap_ns = choice % 8 < 4 ? 50'000 : 1;
  config.max_flows = 1U + choice / 8 % 8;
  config.idle_ns = 1'000'000'000;
  config.steered = choice / 64 == 1;
  config.sample_shift = choice / 64 == 2 ? 3 : 0;
  const std::uint8_t room = input.u8();
  config.window_budget_bytes = 64U * (1U + room % 16);
  config.max_records = room < 128 ? 4 : 4096;
  config.record_budget_bytes = 1U << 18;
  config.max_bursts = room / 16 % 2 == 0 ? 3 : 4096;
  config.max_data_markers = 2;
  return config;
}

void put16(std::span<std::byte> packet, std::size_t at, std::size_t value) {
  packet[at] = static_cast<std::byte>(value >> 8);
  packet[at + 1] = static_cast<std::byte>(value);
}

// Nearby times mostly; else anything that 64 bits hold.
std::int64_t next_ns(Input& input, std::int64_t ns) {
  const std::uint8_t step = input.u8();
  if (step < 0xe0)
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(ns) + (step & 0x1fU) * (1U << step / 32));
  if (step < 0xf0) return static_cast<std::int64_t>(static_cast<std::uint64_t>(ns) - input.number(3));
  if (step < 0xf8) return static_cast<std::int64_t>(static_cast<std::uint64_t>(ns) + input.number(5));
  return static_cast<std::int64_t>(input.number(8));
}

// Headers of one packet, out of few flows with their reverse.
void append_packet(Input& input, pulse::PacketBatch& batch, std::int64_t ns, std::uint8_t head,
                   std::array<std::uint32_t, 16>& psns) {
  const std::uint8_t opcode = head < 0xc0 ? head & 0x1f : input.u8();
  const std::uint8_t flow = head / 32 < 4 ? input.u8() % 16 : head / 32;
  const std::uint8_t step = input.u8();
  std::uint32_t& psn = psns[flow];
  psn = step < 0xd0 ? psn + 1 : step < 0xf0 ? psn - (step & 0x1fU) : static_cast<std::uint32_t>(input.number(3));
  const std::uint8_t shape = input.u8();
  const std::size_t payload_bytes = 4U * (shape % 64) * (shape < 128 ? 1 : 16);
  const std::span<std::byte> packet = batch.append_blank(ns, 2000, pulse::LinkType::ethernet, kSnap);
  put16(packet, 12, 0x0800);
  packet[14] = std::byte{0x45};
  packet[15] = std::byte{static_cast<std::uint8_t>(step % 16 == 15 ? 3 : 2)};
  packet[23] = std::byte{17};
  packet[29] = static_cast<std::byte>(flow % 2);
  packet[33] = static_cast<std::byte>(1 - flow % 2);
  const std::size_t udp_bytes = 8 + 12 + 28 + payload_bytes + 4;
  put16(packet, 16, 20 + udp_bytes);
  put16(packet, kUdpAt + 2, 4791);
  put16(packet, kUdpAt + 4, udp_bytes);
  packet[kBthAt] = static_cast<std::byte>(opcode);
  put16(packet, kBthAt + 2, 0xffff);
  packet[kBthAt + 7] = static_cast<std::byte>(flow);
  packet[kBthAt + 8] = static_cast<std::byte>(shape & 0x80);
  packet[kBthAt + 9] = static_cast<std::byte>(psn >> 16);
  put16(packet, kBthAt + 10, psn & 0xffffU);
  const std::uint8_t pattern = shape % 4 == 3 ? input.u8() : 0;
  for (std::size_t at = kExtensionAt; at < kSnap; ++at) packet[at] = static_cast<std::byte>(pattern * (at % 3));
}

template <typename Record>
void require_equal(const std::vector<Record>& a, const std::vector<Record>& b,
                   const std::source_location place = std::source_location::current()) {
  require(a.size() == b.size(), place);
  require(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Record)) == 0, place);
}

void require_equal(const pulse::Interval& a, const pulse::Interval& b) {
  require_equal(a.flows, b.flows);
  require_equal(a.messages, b.messages);
  require_equal(a.controls, b.controls);
  require_equal(a.bursts, b.bursts);
  require_equal(a.markers, b.markers);
  require_equal(a.events, b.events);
  require_equal(a.histograms, b.histograms);
  require_equal(a.series, b.series);
  require(std::memcmp(&a.counters, &b.counters, sizeof(a.counters)) == 0);
}

void require_sums(const pulse::Interval& interval, std::uint64_t taken) {
  std::uint64_t packets = interval.counters.packets_lost;
  std::uint64_t data_packets = 0;
  for (const pulse::FlowRecord& flow : interval.flows) {
    packets += flow.packets;
    data_packets += flow.data_packets;
  }
  require(packets == taken);
  std::uint64_t in_windows = 0;
  // A tenth of a microsecond and times of 63 bits still count in 64.
  for (const auto& row : pulse::decode_series(interval.series, 1, 1U << 20)) in_windows += row.packets;
  require(in_windows == data_packets || interval.counters.windows_lost != 0 || interval.counters.flows_lost != 0);
  std::uint64_t in_bursts = 0;
  for (const pulse::BurstRecord& burst : interval.bursts) in_bursts += burst.packets;
  require(in_bursts == data_packets || interval.counters.records_lost != 0 || interval.counters.flows_lost != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const pulse::MeterConfig config = config_of(input);
  pulse::Meter meter(config);
  pulse::Meter twin(config);
  std::array<std::uint32_t, 16> psns{};
  std::int64_t ns = 1'000'000;
  std::int64_t begin_ns = 0;
  pulse::PacketBatch batch;
  std::vector<pulse::PacketRecord> records;
  const auto take = [&](bool last) {
    records.assign(batch.size(), {});
    pulse::parse_batch(batch, records);
    std::uint64_t taken = 0;
    for (const pulse::PacketRecord& record : records) {
      twin.update(std::span(&record, 1));
      taken += record.outcome == static_cast<std::uint8_t>(pulse::ParseOutcome::roce) ? 1 : 0;
    }
    require(meter.update_batch(batch, 0, std::nullopt) == batch.size());
    batch.clear();
    const std::int64_t end_ns = ns;
    const pulse::Interval interval = last ? meter.finish(begin_ns, end_ns) : meter.cut(begin_ns, end_ns);
    require_equal(interval, last ? twin.finish(begin_ns, end_ns) : twin.cut(begin_ns, end_ns));
    require_sums(interval, taken);
    begin_ns = end_ns;
  };
  while (!input.empty()) {
    ns = next_ns(input, ns);
    const std::uint8_t head = input.u8();
    if (head == 0xff) {
      take(false);
    } else {
      append_packet(input, batch, ns, head, psns);
    }
  }
  take(true);
  return 0;
}
