// SPDX-License-Identifier: Apache-2.0
#include "pulse/capture_reader.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "bytes.hpp"
#include "check.hpp"

namespace {

using pulse::CaptureReader;
using pulse::PacketBatch;
using pulse::test::Bytes;
using std::endian;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint32_t kNanosecondMagic = 0xa1b23c4d;

Bytes pcap_header(endian order, std::uint32_t magic = kNanosecondMagic, std::uint32_t link_type = 1) {
  return Bytes().u32(magic, order).u16(2, order).u16(4, order).zeros(8).u32(65535, order).u32(link_type, order);
}

Bytes pcap_record(endian order, std::uint32_t seconds, std::uint32_t fraction, const Bytes& packet,
                  std::uint32_t wire_bytes) {
  return Bytes().u32(seconds, order).u32(fraction, order).u32(packet.size(), order).u32(wire_bytes, order).add(packet);
}

Bytes block(endian order, std::uint32_t type, const Bytes& body) {
  const std::size_t padding = (4 - body.size() % 4) % 4;
  const std::size_t bytes = 12 + body.size() + padding;
  return Bytes().u32(type, order).u32(bytes, order).add(body).zeros(padding).u32(bytes, order);
}

Bytes section(endian order) {
  const auto unknown_length = std::numeric_limits<std::uint64_t>::max();
  return block(order, 0x0a0d0d0a, Bytes().u32(0x1a2b3c4d, order).u16(1, order).u16(0, order).u64(unknown_length));
}

Bytes option(endian order, std::uint16_t code, const Bytes& value) {
  return Bytes().u16(code, order).u16(value.size(), order).add(value).zeros((4 - value.size() % 4) % 4);
}

Bytes interface(endian order, std::uint16_t link_type = 1, const Bytes& options = {}) {
  return block(order, 1, Bytes().u16(link_type, order).u16(0, order).u32(0, order).add(options));
}

Bytes ticks(endian order, std::uint64_t value) {
  return Bytes().u32(value >> 32U, order).u32(value & 0xffffffffU, order);
}

Bytes enhanced_packet(endian order, std::uint32_t interface_index, std::uint64_t time, const Bytes& packet) {
  return block(order, 6,
               Bytes()
                   .u32(interface_index, order)
                   .add(ticks(order, time))
                   .u32(packet.size(), order)
                   .u32(packet.size() + 100, order)
                   .add(packet));
}

struct Read {
  PacketBatch batch;
  pulse::CaptureStats stats;
};

Read read(const Bytes& file, std::size_t chunk_bytes = 1U << 20U) {
  Read result;
  CaptureReader reader;
  std::span<const std::byte> rest(file.get());
  while (!rest.empty()) {
    const auto chunk = rest.first(std::min(chunk_bytes, rest.size()));
    reader.feed(chunk, result.batch);
    rest = rest.subspan(chunk.size());
  }
  reader.finish();
  result.stats = reader.stats();
  return result;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST("pcap is read in both byte orders and both resolutions") {
  for (const endian order : {endian::little, endian::big}) {
    const Read ns = read(pcap_header(order).add(pcap_record(order, 5, 999'999'999, {1, 2, 3}, 99)));
    CHECK_EQ(ns.batch.size(), 1U);
    CHECK_EQ(ns.batch.ns()[0], 5 * kSecond + 999'999'999);
    CHECK_EQ(ns.batch.wire_bytes()[0], 99U);
    CHECK(std::ranges::equal(ns.batch.data(0), Bytes{1, 2, 3}.get()));
    CHECK(ns.stats.corrupt.empty());
    const Read us = read(pcap_header(order, 0xa1b2c3d4).add(pcap_record(order, 5, 7, {1}, 99)));
    CHECK_EQ(us.batch.ns()[0], 5 * kSecond + 7000);
  }
}

TEST("every chunk size gives the same packets") {
  Bytes pcap = pcap_header(endian::little);
  Bytes pcapng = section(endian::big).add(interface(endian::big));
  for (std::uint32_t index = 0; index < 5; ++index) {
    const Bytes packet = Bytes().zeros(index * 7 + 1);
    pcap.add(pcap_record(endian::little, index, index, packet, 1000));
    pcapng.add(enhanced_packet(endian::big, 0, index, packet));
  }
  for (const Bytes& file : {pcap, pcapng}) {
    for (std::size_t chunk_bytes = 1; chunk_bytes <= file.size(); ++chunk_bytes) {
      const Read chunked = read(file, chunk_bytes);
      CHECK_EQ(chunked.batch.size(), 5U);
      CHECK_EQ(chunked.batch.captured_bytes().back(), 29U);
      CHECK_EQ(chunked.stats.truncated_bytes, 0U);
      CHECK_EQ(chunked.stats.bytes, file.size());
    }
  }
}

TEST("a file cut inside a packet keeps what came before and tells the cut") {
  const Bytes whole =
      pcap_header(endian::little).add(pcap_record(endian::little, 1, 0, {1, 2}, 2)).add({1, 0, 0, 0, 9, 9, 9});
  const Read cut = read(whole);
  CHECK_EQ(cut.batch.size(), 1U);
  CHECK_EQ(cut.stats.truncated_bytes, 7U);
  CHECK(cut.stats.corrupt.empty());
}

TEST("files that are no captures are refused with a reason") {
  CHECK_EQ(read({}).stats.corrupt, "the file is empty");
  CHECK(contains(read({0x1f, 0x8b, 8, 0, 1}).stats.corrupt, "begins with 1f 8b 08 00 01"));
  CHECK(contains(read({0x1f}).stats.corrupt, "begins with 1f;"));
  CHECK(contains(read(pcap_header(endian::big, 0xa1b2cd34)).stats.corrupt, "modified pcap"));
  Bytes version_three = Bytes().u32(kNanosecondMagic, endian::little).u16(3, endian::little).zeros(18);
  CHECK(contains(read(version_three).stats.corrupt, "version 3"));
  const Read header_only = read(pcap_header(endian::little));
  CHECK(header_only.stats.corrupt.empty());
  CHECK(header_only.batch.empty());
}

TEST("hostile lengths stop the reader, name the byte, and keep earlier packets") {
  const Bytes start = pcap_header(endian::little).add(pcap_record(endian::little, 1, 0, {1, 2}, 2));
  Bytes hostile = start;
  hostile.zeros(8).u32(0x7fffffff, endian::little).u32(64, endian::little).zeros(64);
  const Read pcap = read(hostile, 10);
  CHECK_EQ(pcap.batch.size(), 1U);
  CHECK(contains(pcap.stats.corrupt, "corrupt at byte " + std::to_string(start.size()) + ":"));
  CHECK_EQ(pcap.stats.truncated_bytes, 0U);

  const Bytes head = section(endian::little).add(interface(endian::little));
  for (const std::uint32_t length : {0U, 8U, 13U, 0xfffffff0U}) {
    Bytes file = head;
    const Read pcapng = read(file.u32(6, endian::little).u32(length, endian::little).zeros(40));
    CHECK(contains(pcapng.stats.corrupt, "corrupt at byte " + std::to_string(head.size()) + ": a block of"));
  }
}

TEST("pcapng blocks that contradict themselves stop the reader") {
  const endian order = endian::little;
  const Bytes head = section(order).add(interface(order));
  const auto why = [&](const Bytes& bad) { return read(Bytes(head).add(bad)).stats.corrupt; };
  CHECK(contains(why(enhanced_packet(order, 1, 0, {1})), "interface 1 is not described"));
  CHECK(contains(why(block(order, 6, Bytes().zeros(8))), "too short for its type"));
  CHECK(contains(why(block(order, 6, Bytes().zeros(12).u32(100, order).u32(100, order))), "100 captured"));
  CHECK(contains(why(Bytes().u32(10, order).u32(12, order).u32(16, order)), "two lengths of a block differ"));
  CHECK(contains(why(block(order, 0x0a0d0d0a, Bytes().u32(0x1a2b3c4d, order).u16(2, order).zeros(10))), "version 2"));
  CHECK(contains(why(Bytes().u32(0x0a0d0d0a, order).u32(28, order).zeros(20)), "without byte-order magic"));
}

TEST("pcapng reads several sections, interfaces, resolutions and offsets") {
  const endian first = endian::little;
  const endian second = endian::big;
  const Bytes file =
      section(first)
          .add(interface(first))                                                 // microseconds
          .add(interface(first, 1, option(first, 9, {9})))                       // nanoseconds
          .add(interface(first, 1, option(first, 9, {0x8a})))                    // 2^-10 s
          .add(interface(first, 1, option(first, 14, Bytes().u64(100, first))))  // offset of 100 s
          .add(interface(first, 1, option(first, 9, {12})))                      // picoseconds
          .add(enhanced_packet(first, 0, 1'000'001, {1}))
          .add(enhanced_packet(first, 1, 1'000'000'001, {1}))
          .add(enhanced_packet(first, 2, 1024 + 512, {1}))
          .add(enhanced_packet(first, 3, 1'000'000, {1}))
          .add(enhanced_packet(first, 4, 7999, {1}))
          .add(section(second))
          .add(block(second, 0x40000bad, Bytes().zeros(20)))  // unknown kinds are skipped
          .add(interface(second, 113))
          .add(block(second, 2,
                     Bytes().u16(0, second).u16(3, second).add(ticks(second, 9)).u32(1, second).u32(60, second).u8(1)))
          .add(block(second, 3, Bytes().u32(60, second).zeros(60)));
  const Read result = read(file);
  CHECK_EQ(result.stats.corrupt, "");
  const std::vector<std::int64_t> expected = {kSecond + 1000, kSecond + 1, kSecond * 3 / 2, 101 * kSecond, 7, 9000};
  CHECK(std::ranges::equal(result.batch.ns(), expected));
  CHECK_EQ(result.batch.link_types().back(), pulse::LinkType::linux_sll);
  CHECK_EQ(result.stats.untimed, 1U);
  CHECK_EQ(result.stats.first_ns, std::optional<std::int64_t>(7));
  CHECK_EQ(result.stats.last_ns, std::optional<std::int64_t>(101 * kSecond));
}

TEST("interface statistics tell drops once and witness that the capture still ran") {
  const endian order = endian::little;
  const auto statistics = [&](std::uint64_t time, std::uint64_t drops) {
    const Bytes options = option(order, 5, Bytes().u64(drops, order)).add(option(order, 3, ticks(order, time + 1)));
    return block(order, 5, Bytes().u32(0, order).add(ticks(order, time)).add(options));
  };
  const Read result =
      read(section(order).add(interface(order)).add(statistics(1'000'000, 4)).add(statistics(2'000'000, 10)));
  CHECK_EQ(result.stats.interface_drops, 10U);
  CHECK_EQ(result.stats.statistics_ns, std::optional<std::int64_t>(2 * kSecond + 1000));
}

TEST("packets that cannot be used are counted by reason") {
  const endian order = endian::little;
  const Bytes negative_offset = option(order, 14, Bytes().u64(static_cast<std::uint64_t>(-5), order));
  const Bytes file = section(order)
                         .add(interface(order, 1, negative_offset))
                         .add(interface(order, 147))
                         .add(interface(order, 1, option(order, 9, {0x7f})))
                         .add(enhanced_packet(order, 0, 1, {1}))                                          // before 1970
                         .add(enhanced_packet(order, 0, std::numeric_limits<std::uint64_t>::max(), {1}))  // after 2262
                         .add(enhanced_packet(order, 2, 1, {1}))
                         .add(enhanced_packet(order, 1, 1, {1}))
                         .add(enhanced_packet(order, 0, 9'000'000, {}));
  const Read result = read(file);
  CHECK_EQ(result.stats.packets, 0U);
  CHECK_EQ(result.stats.bad_timestamps, 3U);
  CHECK_EQ(result.stats.skipped_link_types.at(147), 1U);
  CHECK_EQ(result.stats.zero_length, 1U);
  const Read pcap = read(pcap_header(order).add(pcap_record(order, 1, 1'000'000'000, {1}, 60)));
  CHECK_EQ(pcap.stats.bad_timestamps, 1U);
}

TEST("only the asked number of bytes is kept, and the wire length is never less than the captured one") {
  CaptureReader reader(4);
  PacketBatch batch;
  const Bytes file = pcap_header(endian::little).add(pcap_record(endian::little, 1, 0, Bytes().zeros(100), 0));
  reader.feed(file.get(), batch);
  CHECK_EQ(batch.captured_bytes()[0], 4U);
  CHECK_EQ(batch.wire_bytes()[0], 100U);
}

}  // namespace
