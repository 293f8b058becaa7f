// SPDX-License-Identifier: Apache-2.0
//
// A program that uses the core as a library, through its one header: the rate of a capture's busiest flow.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bytes.hpp"
#include "check.hpp"
#include "pulse/pulse.hpp"

namespace {

using pulse::test::Bytes;

// Ethernet, IPv4, UDP and BTH of one RDMA WRITE MIDDLE with `payload_bytes`, cut off behind its headers.
Bytes packet_record(std::uint32_t microsecond, std::uint32_t psn, std::uint32_t payload_bytes) {
  constexpr auto kOrder = std::endian::little;
  const std::uint32_t udp_bytes = 8 + 12 + payload_bytes + 4;
  Bytes packet;
  packet.u32(1, kOrder).u32(microsecond, kOrder).u32(54, kOrder).u32(34 + udp_bytes, kOrder);
  packet.zeros(12).u16(0x0800);
  packet.u8(0x45).u8(0).u16(20 + udp_bytes).zeros(4).u8(64).u8(17).u16(0).u32(0x0a000001).u32(0x0a000002);
  packet.u16(49152).u16(4791).u16(udp_bytes).u16(0);
  packet.u8(0x07).u8(0).u16(0xffff).u32(77).u32(psn);
  return packet;
}

std::vector<std::byte> capture() {
  constexpr auto kOrder = std::endian::little;
  Bytes file;
  file.u32(0xa1b2c3d4, kOrder).u16(2, kOrder).u16(4, kOrder).zeros(8).u32(65535, kOrder).u32(1, kOrder);
  for (std::uint32_t i = 0; i < 10; ++i) file.add(packet_record(i * 3, i, 1024));
  return file.get();
}

TEST("a program of a few lines gives the rate of a capture's busiest flow") {
  pulse::CaptureReader reader;
  pulse::PacketBatch batch;
  pulse::MeterConfig config;
  config.window_ns = 1'000;
  pulse::Meter meter(config);
  const std::vector<std::byte> file = capture();
  for (std::span<const std::byte> rest = file; !rest.empty();) {
    const auto chunk = rest.first(std::min<std::size_t>(rest.size(), 100));
    batch.clear();
    reader.feed(chunk, batch);
    meter.update_batch(batch, 0, std::nullopt);
    rest = rest.subspan(chunk.size());
  }
  reader.finish();
  const pulse::Interval interval = meter.finish(*reader.stats().first_ns, *reader.stats().last_ns + 1);
  const auto busiest = std::ranges::max_element(interval.flows, {}, &pulse::FlowRecord::data_bytes);
  CHECK(busiest != interval.flows.end());
  CHECK_EQ(busiest->dest_qpn, 77U);
  const auto rows = pulse::decode_series(interval.series, interval.window_ns, 1U << 24);
  CHECK_EQ(rows.size(), 10U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK_EQ(rows[i].start_ns, 1'000'000'000 + static_cast<std::int64_t>(i) * 3'000);
    CHECK_EQ(rows[i].bytes, 1024U);
  }
}

}  // namespace
