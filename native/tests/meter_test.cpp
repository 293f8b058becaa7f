// SPDX-License-Identifier: Apache-2.0
//
// What concerns the meter as a whole: bounds, flows that come and go, pairs. What
// it says of single packets is compared with a second meter from Python.
#include "pulse/meter.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "pulse/histogram.hpp"
#include "pulse/window_series.hpp"

namespace {

constexpr std::uint8_t kWriteOnly = 0x0a;
constexpr std::uint8_t kWriteFirst = 0x06;
constexpr std::uint8_t kAck = 0x11;

pulse::PacketRecord packet(std::int64_t ns, std::uint8_t opcode, std::uint32_t qpn, std::uint32_t psn,
                           bool reverse = false) {
  pulse::PacketRecord record{};
  record.ns = ns;
  record.src[15] = reverse ? 2 : 1;
  record.dst[15] = reverse ? 1 : 2;
  record.opcode = opcode;
  record.dest_qpn = qpn;
  record.psn = psn;
  record.wire_bytes = 1000;
  record.payload_bytes = opcode == kAck ? 0 : 900;
  record.dma_bytes = opcode == kAck ? 0 : 900;
  record.family = 4;
  return record;
}

void take(pulse::Meter& meter, const pulse::PacketRecord& record) { meter.update(std::span(&record, 1)); }

TEST("a full table evicts the coldest flow and keeps its totals") {
  pulse::MeterConfig config;
  config.max_flows = 4;
  pulse::Meter meter(config);
  for (std::uint32_t i = 0; i < 100; ++i) take(meter, packet(i * 10, kWriteOnly, i % 10, i / 10));
  CHECK_EQ(meter.flow_count(), 4U);
  const pulse::Interval interval = meter.cut(0, 1000);
  std::uint64_t packets = 0;
  std::uint64_t windows = 0;
  for (const auto& flow : interval.flows) packets += flow.packets;
  for (const auto& window : pulse::decode_series(interval.series, interval.window_ns, 1000)) {
    windows += window.packets;
  }
  CHECK(interval.counters.flows_evicted + interval.counters.flows_lost > 0);
  CHECK_EQ(packets + interval.counters.packets_lost, 100U);
  CHECK_EQ(windows + interval.counters.packets_lost, 100U);
  CHECK_EQ(interval.counters.flows_created, 100U);
}

TEST("an evicted flow hands out its open message") {
  pulse::MeterConfig config;
  config.max_flows = 1;
  pulse::Meter meter(config);
  take(meter, packet(1, kWriteFirst, 1, 0));
  take(meter, packet(2, kWriteOnly, 2, 0));
  const pulse::Interval interval = meter.cut(0, 10);
  CHECK_EQ(interval.messages.size(), 2U);
  CHECK(interval.messages[0].flags & pulse::kMessageNoEnd);
}

TEST("an idle flow is delivered, leaves, and comes back under a new number") {
  pulse::MeterConfig config;
  config.idle_ns = 1000;
  pulse::Meter meter(config);
  take(meter, packet(5, kWriteOnly, 1, 0));
  const pulse::Interval first = meter.cut(0, 5000);
  CHECK_EQ(first.flows.size(), 1U);
  CHECK_EQ(first.counters.flows_aged_out, 1U);
  CHECK_EQ(meter.flow_count(), 0U);
  take(meter, packet(6000, kWriteOnly, 1, 1));
  const pulse::Interval second = meter.cut(5000, 6500);
  CHECK_EQ(second.flows.size(), 1U);
  CHECK_EQ(second.flows[0].flow, 1U);
}

TEST("records beyond the bound are counted") {
  pulse::MeterConfig config;
  config.max_records = 3;
  pulse::Meter meter(config);
  for (std::uint32_t i = 0; i < 10; ++i) take(meter, packet(i, kWriteOnly, 1, i));
  const pulse::Interval interval = meter.cut(0, 100);
  CHECK_EQ(interval.messages.size(), 3U);
  CHECK_EQ(interval.flows[0].messages, 10U);
  CHECK_EQ(interval.counters.records_lost, 7U + 7U);  // messages and markers
}

TEST("an ACK finds its flow, and its latency is counted there") {
  pulse::Meter meter(pulse::MeterConfig{});
  for (std::uint32_t i = 0; i < 8; ++i) {
    take(meter, packet(i * 1000, kWriteOnly, 11, 500 + i));
    take(meter, packet(i * 1000 + 1, kWriteOnly, 12, 9000 + 3 * i));  // same addresses, other PSNs
    take(meter, packet(i * 1000 + 64, kAck, 21, 500 + i, true));
  }
  const pulse::Interval interval = meter.cut(0, 10'000);
  CHECK_EQ(interval.flows[0].reverse_flow, 2U);
  CHECK_EQ(interval.flows[1].reverse_flow, pulse::kNoFlow);
  CHECK_EQ(interval.flows[2].reverse_flow, 0U);
  CHECK(interval.flows[2].reverse_confidence > 0.8F);
  std::uint32_t latencies = 0;
  for (const auto& cell : interval.histograms) {
    if (cell.kind != static_cast<std::uint8_t>(pulse::HistogramKind::ack_ns)) continue;
    CHECK_EQ(cell.flow, 0U);
    CHECK_EQ(pulse::histogram_lower_bound(cell.cell), 64U);
    latencies += cell.count;
  }
  CHECK_EQ(latencies, 6U);  // from the third vote on
}

TEST("queue pairs that send the same PSNs at the same time stay unpaired") {
  pulse::Meter meter(pulse::MeterConfig{});
  for (std::uint32_t i = 0; i < 50; ++i) {
    take(meter, packet(i * 1000, kWriteOnly, 11, i));
    take(meter, packet(i * 1000 + 1, kWriteOnly, 12, i));
    take(meter, packet(i * 1000 + 64, kAck, 21, i, true));
    take(meter, packet(i * 1000 + 65, kAck, 22, i, true));
  }
  for (const auto& flow : meter.cut(0, 100'000).flows) CHECK_EQ(flow.reverse_flow, pulse::kNoFlow);
}

TEST("a configuration that cannot be met is refused by name") {
  const auto refuses = [](const pulse::MeterConfig& config, std::string_view name) {
    try {
      pulse::Meter meter(config);
    } catch (const std::invalid_argument& error) {
      return std::string_view(error.what()).find(name) != std::string_view::npos;
    }
    return false;
  };
  pulse::MeterConfig config;
  config.window_ns = 1;
  CHECK(refuses(config, "window_ns"));
  config = {};
  config.max_flows = 0;
  CHECK(refuses(config, "max_flows"));
  config = {};
  config.burst_gap_ns = 1LL << 40;
  CHECK(refuses(config, "burst_gap_ns"));
}

TEST("what a meter says does not depend on how packets came to it, whatever their times") {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  constexpr std::uint8_t kUcWriteMiddle = 0x27;
  const std::vector<pulse::PacketRecord> packets = {
      packet(-kFar, 0x07, 1, 0),
      packet(-kFar + 1, kUcWriteMiddle, 1, 1),
      packet(kFar, 0x07, 1, 2),
      packet(-kFar, 0x07, 1, 3),
      packet(5, 0x07, 2, 9),
      packet(5, kWriteFirst, 2, 40),
      packet(20'000'000'000, 0x07, 2, 41),
      packet(20'000'000'001, kWriteOnly, 3, 0),
  };
  pulse::Meter whole(pulse::MeterConfig{});
  pulse::Meter single(pulse::MeterConfig{});
  whole.update(packets);
  for (const auto& one : packets) take(single, one);
  const pulse::Interval a = whole.finish(0, 1);
  const pulse::Interval b = single.finish(0, 1);
  const auto same = [](const auto& left, const auto& right) {
    return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(left[0])) == 0;
  };
  CHECK(same(a.flows, b.flows));
  CHECK(same(a.messages, b.messages));
  CHECK(same(a.bursts, b.bursts));
  CHECK(same(a.histograms, b.histograms));
  CHECK(same(a.events, b.events));
  CHECK(a.series == b.series);
}

TEST("histogram cells cover all values without holes") {
  for (unsigned cell = 0; cell + 1 < pulse::kHistogramCells; ++cell) {
    CHECK_EQ(pulse::histogram_cell(pulse::histogram_lower_bound(cell)), cell);
    CHECK_EQ(pulse::histogram_cell(pulse::histogram_lower_bound(cell + 1) - 1), cell);
  }
  CHECK_EQ(pulse::histogram_cell(~std::uint64_t{0}), pulse::kHistogramCells - 1);
}

}  // namespace
