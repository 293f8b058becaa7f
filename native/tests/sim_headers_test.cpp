// SPDX-License-Identifier: Apache-2.0
#include "sim/headers.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "bytes.hpp"
#include "check.hpp"
#include "pulse/icrc.hpp"
#include "pulse/opcode.hpp"
#include "pulse/packet_parser.hpp"
#include "sim_world.hpp"

namespace {

using pulse::PacketBatch;
using pulse::PacketRecord;
using pulse::sim::FrameWriter;
using pulse::sim::PacketRun;
using pulse::sim::Verb;
using pulse::sim::WireStyle;
using pulse::test::Bytes;
using pulse::test::data_run;
using pulse::test::kEnds;
using pulse::test::kNics;
using pulse::test::response_run;

constexpr std::uint8_t kNoEcn = 0;

WireStyle plain_style() {
  WireStyle style;
  style.type_of_service = kNoEcn;
  return style;
}

PacketBatch packet(const WireStyle& style, const PacketRun& run, std::uint32_t index = 0, std::uint32_t snap_bytes = 0,
                   bool received = false) {
  PacketBatch batch;
  FrameWriter(style, kNics, kEnds, snap_bytes).append(run, index, received, 5, batch);
  return batch;
}

// The ICRC of a whole packet agrees with what the core computes over it.
bool has_valid_icrc(const PacketBatch& batch, std::size_t index, std::size_t ip_offset) {
  const auto data = batch.data(index);
  const auto tail = data.last(4);
  std::uint32_t shown = 0;
  for (std::size_t place = 0; place < 4; ++place) {
    shown |= std::to_integer<std::uint32_t>(tail[place]) << 8 * place;
  }
  return pulse::icrc(data.subspan(ip_offset, data.size() - ip_offset - 4)) == shown;
}

PacketRecord parsed(const PacketBatch& batch) {
  PacketRecord record{};
  const auto outcome = pulse::parse_packet(batch.data(0), pulse::LinkType::ethernet, batch.wire_bytes()[0], record);
  CHECK_EQ(outcome, pulse::ParseOutcome::roce);
  return record;
}

Bytes link(bool from_first) {
  return from_first ? Bytes{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0} : Bytes{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0};
}

Bytes network(bool from_first, std::uint64_t ip_bytes, std::uint64_t checksum) {
  const Bytes first{10, 0, 0, 1};
  const Bytes second{10, 0, 0, 2};
  return Bytes{0x45, 0}
      .u16(ip_bytes)
      .u16(0)
      .u16(0x4000)
      .u8(64)
      .u8(17)
      .u16(checksum)
      .add(from_first ? first : second)
      .add(from_first ? second : first)
      .u16(49152)
      .u16(4791)
      .u16(ip_bytes - 20)
      .u16(0);
}

void check_bytes(const PacketBatch& batch, const Bytes& expected) {
  CHECK_EQ(batch.size(), 1U);
  CHECK_EQ(batch.wire_bytes()[0], expected.size());
  CHECK(pulse::test::bytes_of(batch, 0) == expected.get());
}

TEST("a WRITE_FIRST equals its known bytes and ICRC") {
  Bytes payload;
  for (int index = 0; index < 4096; ++index) {
    payload.u8(0xab);
  }
  check_bytes(packet(plain_style(), data_run(Verb::write, 8192, 2)), link(true)
                                                                         .add(network(true, 4156, 0x16af))
                                                                         .add({0x06, 0x40, 0xff, 0xff, 0})
                                                                         .u24(0x123)
                                                                         .u8(0)
                                                                         .u24(0xfffffe)
                                                                         .u64(0x7f0000001000)
                                                                         .u32(0x1234)
                                                                         .u32(8192)
                                                                         .add(payload)
                                                                         .add({0x64, 0xb1, 0x7f, 0xc7}));
}

TEST("a WRITE_ONLY_IMM without payload equals its known bytes and ICRC") {
  PacketRun run = data_run(Verb::write_imm, 0, 1);
  run.address = 0;
  run.remote_key = 0;
  run.index = 2;  // past the wrap of the PSN
  run.ack_request = true;
  check_bytes(packet(plain_style(), run), link(true)
                                              .add(network(true, 64, 0x26ab))
                                              .add({0x0b, 0x40, 0xff, 0xff, 0})
                                              .u24(0x123)
                                              .u8(0x80)
                                              .u24(0)
                                              .zeros(16)
                                              .u32(0x2000)
                                              .add({0x9a, 0xd7, 0xff, 0x2e}));
}

TEST("an ACK and a NAK equal their known bytes and ICRC") {
  const auto expected = [](std::uint64_t psn, std::uint64_t aeth) {
    return link(false)
        .add(network(false, 48, 0x26bb))
        .add({0x11, 0x40, 0xff, 0xff, 0})
        .u24(0x456)
        .u8(0)
        .u24(psn)
        .u32(aeth);
  };
  check_bytes(packet(plain_style(), response_run(Verb::acknowledge, 2, 0x1f, 1)),
              expected(0, 0x1f000001).add({0x61, 0x64, 0x58, 0xd9}));
  check_bytes(packet(plain_style(), response_run(Verb::acknowledge, 0, 0x60, 7)),
              expected(0xfffffe, 0x60000007).add({0x5e, 0x7e, 0x91, 0x82}));
}

TEST("a CNP has BECN, its own TOS, PSN 0 and 16 zero bytes") {
  PacketRun run = response_run(Verb::cnp, 99, 0, 0);
  const PacketBatch batch = packet(plain_style(), run);
  CHECK_EQ(batch.wire_bytes()[0], 74U);
  const auto data = batch.data(0);
  CHECK_EQ(std::to_integer<int>(data[15]), 0xc0);
  CHECK_EQ(std::to_integer<int>(data[42]), 0x81);
  CHECK_EQ(std::to_integer<int>(data[46]), 0x40);
  CHECK(std::all_of(data.begin() + 50, data.begin() + 70, [](std::byte byte) { return byte == std::byte{0}; }));
  CHECK(has_valid_icrc(batch, 0, 14));
  CHECK_EQ(parsed(batch).opcode, pulse::kCnp);
}

TEST("an atomic and its response carry their headers") {
  const PacketBatch request = packet(plain_style(), data_run(Verb::fetch_add, 8, 1));
  CHECK_EQ(request.wire_bytes()[0], 14U + 20 + 8 + 12 + 28 + 4);
  CHECK_EQ(parsed(request).opcode, pulse::operation::kFetchAdd);
  CHECK_EQ(parsed(request).payload_bytes, 0U);
  CHECK(has_valid_icrc(request, 0, 14));
  const PacketBatch response = packet(plain_style(), response_run(Verb::atomic_ack, 4, 0x1f, 9));
  CHECK_EQ(parsed(response).opcode, pulse::operation::kAtomicAcknowledge);
  CHECK_EQ(parsed(response).psn, 2U);
  CHECK_EQ(parsed(response).msn, 9U);
  CHECK(has_valid_icrc(response, 0, 14));
}

struct Expected {
  Verb verb;
  std::uint8_t first, middle, last, only;
};

constexpr Expected kExpected[] = {
    {Verb::write, 0x06, 0x07, 0x08, 0x0a},
    {Verb::write_imm, 0x06, 0x07, 0x09, 0x0b},
    {Verb::send, 0x00, 0x01, 0x02, 0x04},
};

void check_parsed(const WireStyle& style, const PacketRun& run, std::uint32_t index, std::uint8_t opcode,
                  std::uint32_t payload_bytes) {
  const std::size_t ip_offset = style.vlan < 0 ? 14 : 18;
  const PacketBatch whole = packet(style, run, index);
  CHECK(has_valid_icrc(whole, 0, ip_offset));
  const PacketBatch snapped = packet(style, run, index, 128);
  CHECK_EQ(snapped.wire_bytes()[0], whole.wire_bytes()[0]);
  const auto kept = whole.data(0).first(snapped.data(0).size());
  CHECK(std::equal(kept.begin(), kept.end(), snapped.data(0).begin()));

  const PacketRecord record = parsed(snapped);
  CHECK_EQ(record.opcode, opcode);
  CHECK_EQ(record.payload_bytes, payload_bytes);
  CHECK_EQ(record.psn, (0xfffffeU + run.index + index) & 0xffffffU);
  CHECK_EQ(record.dest_qpn, 0x123U);
  CHECK_EQ(record.udp_sport, 49152);
  CHECK_EQ(record.family, style.ipv6 ? 6 : 4);
  CHECK_EQ(record.ecn, 2);
  CHECK_EQ(record.ack_req, index + 1 == run.count ? 1 : 0);
  const bool has_reth = opcode == 0x06 || opcode == 0x0a || opcode == 0x0b;
  CHECK_EQ(record.dma_bytes, has_reth ? run.message_bytes : 0U);
  CHECK_EQ(record.immediate, opcode == 0x09 || opcode == 0x0b ? 0x2000U : 0U);
}

TEST("every verb and place parses to what was simulated, over IPv4, IPv6 and a VLAN") {
  for (int form = 0; form < 4; ++form) {
    WireStyle style;
    style.mtu = 1024;
    style.ipv6 = form % 2 == 1;
    style.vlan = form / 2 == 1 ? 5 : -1;
    for (const Expected& expected : kExpected) {
      PacketRun run = data_run(expected.verb, 2 * 1024 + 301, 3);
      run.ack_request = true;
      check_parsed(style, run, 0, expected.first, 1024);
      check_parsed(style, run, 1, expected.middle, 1024);
      check_parsed(style, run, 2, expected.last, 301);
      for (std::uint32_t bytes = 0; bytes < 70; ++bytes) {
        PacketRun single = data_run(expected.verb, bytes, 1);
        single.ack_request = true;
        check_parsed(style, single, 0, expected.only, bytes);
      }
    }
  }
}

TEST("a message cut into runs gives the same packets as one run") {
  const PacketRun whole = data_run(Verb::write, 4 * 4096 + 2, 5);
  for (std::uint32_t index = 0; index < 5; ++index) {
    PacketRun part = whole;
    part.offset = index;
    part.index = index;
    part.count = 1;
    part.ip_id = static_cast<std::uint16_t>(index);
    CHECK(pulse::test::bytes_of(packet({}, whole, index), 0) == pulse::test::bytes_of(packet({}, part), 0));
  }
}

TEST("a congestion mark shows on received packets only") {
  PacketRun run = data_run(Verb::write, 64, 1);
  run.congestion_mark = true;
  CHECK_EQ(parsed(packet({}, run, 0, 128, false)).ecn, 2);
  CHECK_EQ(parsed(packet({}, run, 0, 128, true)).ecn, 3);
  CHECK(has_valid_icrc(packet({}, run, 0, 0, true), 0, 14));
}

TEST("the IPv4 checksum is right and the identification counts up past its wrap") {
  PacketRun run = data_run(Verb::write, 9 * 4096, 9);
  run.ip_id = 0xfffc;
  for (std::uint32_t index = 0; index < 9; ++index) {
    const PacketBatch batch = packet({}, run, index, 128);
    const auto header = batch.data(0).subspan(14, 20);
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < 20; at += 2) {
      sum += std::to_integer<std::uint32_t>(header[at]) << 8 | std::to_integer<std::uint32_t>(header[at + 1]);
    }
    CHECK_EQ((sum & 0xffffU) + (sum >> 16), 0xffffU);
    const std::uint32_t id = std::to_integer<std::uint32_t>(header[4]) << 8 | std::to_integer<std::uint32_t>(header[5]);
    CHECK_EQ(id, (0xfffcU + index) & 0xffffU);
  }
}

TEST("any snap length keeps the beginning of the same packet, also inside pad and ICRC") {
  PacketRun run = data_run(Verb::write, 61, 1);  // 3 bytes of pad before the ICRC
  const PacketBatch whole = packet({}, run);
  CHECK_EQ(whole.wire_bytes()[0], 138U);
  for (std::uint32_t snap_bytes = 14; snap_bytes < 160; ++snap_bytes) {
    const PacketBatch snapped = packet({}, run, 0, snap_bytes);
    CHECK_EQ(snapped.data(0).size(), std::min(138U, snap_bytes));
    CHECK(std::equal(snapped.data(0).begin(), snapped.data(0).end(), whole.data(0).begin()));
  }
}

TEST("a style that no frame can show is refused by the name of its field") {
  const auto refused = [](const WireStyle& style, std::uint32_t snap_bytes, const std::string& field) {
    try {
      FrameWriter(style, kNics, kEnds, snap_bytes);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()).starts_with(field + ":");
    }
    return false;
  };
  WireStyle small_mtu;
  small_mtu.mtu = 100;
  CHECK(refused(small_mtu, 0, "mtu"));
  WireStyle wide_tag;
  wide_tag.vlan = 4096;
  CHECK(refused(wide_tag, 0, "vlan"));
  CHECK(refused({}, 13, "snap_bytes"));
}

}  // namespace
