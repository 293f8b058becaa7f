// SPDX-License-Identifier: Apache-2.0
//
// The short ways of the packet path change nothing: neither what the parser makes of
// a packet, nor what the meter makes of a capture.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "fast_parser.hpp"
#include "packet_lane.hpp"
#include "pulse/meter.hpp"
#include "pulse/opcode_traits.hpp"
#include "pulse/packet_parser.hpp"
#include "traffic.hpp"

namespace {

using pulse::PacketBatch;
using pulse::PacketRecord;

bool same_bytes(const PacketRecord& a, const PacketRecord& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Headers of every kind that the traffic has, with and without a VLAN tag, and with a few bytes changed.
std::vector<std::byte> changed(std::span<const std::byte> packet, std::mt19937& random) {
  std::vector<std::byte> bytes(packet.begin(), packet.end());
  if (random() % 3 == 0) {
    const std::byte tag[4] = {std::byte{0x81}, std::byte{0}, std::byte{0x60}, std::byte{5}};
    bytes.insert(bytes.begin() + 12, tag, tag + 4);
  }
  if (random() % 2 == 0) bytes[42 + (bytes.size() > 80 ? 0 : 4)] = static_cast<std::byte>(random());
  for (auto changes = random() % 3; changes > 0; --changes) {
    bytes[random() % std::min<std::size_t>(bytes.size(), 75)] = static_cast<std::byte>(random());
  }
  if (random() % 4 == 0) bytes.resize(random() % bytes.size());
  return bytes;
}

void check_packet(std::span<const std::byte> bytes, std::uint32_t wire_bytes) {
  PacketRecord full{};
  PacketRecord shortly{};
  full.ns = shortly.ns = 77;
  const auto outcome = pulse::parse_in_full(bytes, pulse::LinkType::ethernet, wire_bytes, full);
  CHECK(pulse::parse_packet(bytes, pulse::LinkType::ethernet, wire_bytes, shortly) == outcome);
  CHECK(same_bytes(full, shortly));
  pulse::PacketLane lane{};
  if (!pulse::read_lane(bytes.data(), bytes.size(), pulse::LinkType::ethernet, lane)) return;
  CHECK(outcome == pulse::ParseOutcome::roce);
  CHECK(pulse::opcode_traits(full.opcode).place == pulse::MessagePlace::middle);
  CHECK_EQ(lane.psn & 0xffffffU, full.psn);
  CHECK_EQ(lane.psn >> 31U, full.ack_req);
  CHECK_EQ(lane.payload_bytes, full.payload_bytes);
  CHECK_EQ(lane.tail, full.dest_qpn);
  CHECK(pulse::FlowTable(1).shorten(pulse::flow_key(full)) == lane.key());
  CHECK(full.ecn != 3);
}

TEST("the short way through the headers makes the same record as the long way, of whatever bytes") {
  std::mt19937 random(7);
  pulse::bench::TrafficConfig config;
  config.flows = 16;
  config.message_bytes = 16'384;
  pulse::bench::Traffic traffic(config);
  PacketBatch batch;
  std::vector<std::uint32_t> flows;
  traffic.fill(batch, 20'000, flows);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    check_packet(batch.data(i), batch.wire_bytes()[i]);
    check_packet(changed(batch.data(i), random), batch.wire_bytes()[i]);
  }
}

template <typename Record>
void check_rows(const std::vector<Record>& a, const std::vector<Record>& b) {
  CHECK_EQ(a.size(), b.size());
  CHECK(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Record)) == 0);
}

TEST("a meter sees the same in captured headers and in records") {
  for (const std::uint32_t train : {1U, 7U}) {
    pulse::bench::TrafficConfig config;
    config.flows = 60;
    config.message_bytes = 64U << 10;
    config.train_packets = train;
    pulse::bench::Traffic traffic(config);
    pulse::Meter captured({});
    pulse::Meter parsed({});
    PacketBatch batch;
    std::vector<std::uint32_t> flows;
    std::vector<PacketRecord> records;
    for (int interval = 0; interval < 3; ++interval) {
      const std::int64_t begin_ns = traffic.now_ns();
      traffic.fill(batch, 30'000, flows);
      records.resize(batch.size());
      pulse::parse_batch(batch, records);
      CHECK_EQ(captured.update_batch(batch, 0, std::nullopt), batch.size());
      // One by one: no run is ever longer than a packet.
      for (const PacketRecord& record : records) parsed.update({&record, 1});
      const pulse::Interval a = captured.cut(begin_ns, traffic.now_ns());
      const pulse::Interval b = parsed.cut(begin_ns, traffic.now_ns());
      check_rows(a.flows, b.flows);
      check_rows(a.messages, b.messages);
      check_rows(a.bursts, b.bursts);
      check_rows(a.markers, b.markers);
      check_rows(a.histograms, b.histograms);
      CHECK(a.series == b.series);
      CHECK(!a.messages.empty() && !a.bursts.empty() && !a.series.empty());
    }
  }
}

TEST("over their bounds bursts are joined and data markers thinned, and nothing is lost") {
  pulse::bench::TrafficConfig traffic_config;
  traffic_config.flows = 400;
  traffic_config.mtu = 1024;
  pulse::bench::Traffic traffic(traffic_config);
  pulse::MeterConfig config;
  config.burst_gap_ns = 2'000;
  config.max_bursts = 5'000;
  config.max_data_markers = 500;
  pulse::Meter meter(config);
  PacketBatch batch;
  std::vector<std::uint32_t> flows;
  const std::int64_t begin_ns = traffic.now_ns();
  traffic.fill(batch, 200'000, flows);
  static_cast<void>(meter.update_batch(batch, 0, std::nullopt));
  const pulse::Interval interval = meter.cut(begin_ns, traffic.now_ns());
  CHECK(interval.counters.burst_gap_doublings > 0);
  CHECK(interval.counters.marker_halvings > 0);
  CHECK_EQ(interval.counters.records_lost, 0U);
  CHECK(interval.bursts.size() <= config.max_bursts + traffic_config.flows);
  std::uint64_t burst_packets = 0;
  std::uint64_t data_packets = 0;
  for (const auto& burst : interval.bursts) burst_packets += burst.packets;
  for (const auto& flow : interval.flows) data_packets += flow.data_packets;
  CHECK_EQ(burst_packets, data_packets);
  std::size_t data_markers = 0;
  for (const auto& marker : interval.markers) {
    CHECK_EQ(marker.reserved, 0U);
    if (marker.kind == static_cast<std::uint8_t>(pulse::MarkerKind::data)) ++data_markers;
  }
  CHECK(data_markers > config.max_data_markers / 4 && data_markers <= config.max_data_markers);
}

}  // namespace
