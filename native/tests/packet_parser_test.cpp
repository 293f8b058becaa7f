// SPDX-License-Identifier: Apache-2.0
#include "pulse/packet_parser.hpp"

#include "bytes.hpp"
#include "check.hpp"
#include "pulse/opcode.hpp"

namespace {

using pulse::LinkType;
using pulse::PacketRecord;
using pulse::ParseOutcome;
using pulse::test::Bytes;

constexpr std::uint32_t kWireBytes = 4178;

Bytes ethernet(int ether_type) { return Bytes().zeros(12).u16(static_cast<std::uint64_t>(ether_type)); }

Bytes ipv4(std::size_t payload_bytes, int protocol = 17, int tos = 0, int fragment = 0x4000) {
  return Bytes{0x45, tos}
      .u16(payload_bytes + 20)
      .u16(0)
      .u16(static_cast<std::uint64_t>(fragment))
      .u8(64)
      .u8(static_cast<std::uint64_t>(protocol))
      .u16(0)
      .add({10, 0, 0, 1, 10, 0, 0, 2});
}

Bytes ipv6(std::size_t payload_bytes, int next_header = 17) {
  return Bytes{0x60, 0x20, 0, 0}  // ECN 2
      .u16(payload_bytes)
      .u8(static_cast<std::uint64_t>(next_header))
      .u8(64)
      .add({0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
      .add({0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2});
}

Bytes udp(std::size_t payload_bytes, int dport = 4791) {
  return Bytes().u16(49152).u16(static_cast<std::uint64_t>(dport)).u16(payload_bytes + 8).u16(0);
}

Bytes bth(int opcode, int pad = 0) {
  return Bytes{opcode, 0x40 | (pad << 4), 0xff, 0xff, 0x0a}.u24(0x123).u8(0x80).u24(0xfffffe);
}

const Bytes kReth = Bytes().u64(0x7f0000001000).u32(0x1234).u32(8192);

// A WRITE_FIRST of 4096 bytes of which no payload was captured.
Bytes write_first() { return bth(0x06).add(kReth); }
constexpr std::size_t kWriteFirstBytes = 12 + 16 + 4096 + 4;

struct Parsed {
  ParseOutcome outcome;
  PacketRecord record;
};

Parsed parse(const Bytes& packet, LinkType link_type = LinkType::ethernet) {
  // An exact copy on the heap, so that a sanitizer sees every read past its end.
  const std::vector<std::byte> exact(packet.get());
  Parsed parsed{};
  parsed.record.ns = 7;
  parsed.outcome = pulse::parse_packet(exact, link_type, kWireBytes, parsed.record);
  CHECK_EQ(parsed.record.outcome, static_cast<std::uint8_t>(parsed.outcome));
  CHECK_EQ(parsed.record.ns, 7);
  return parsed;
}

Parsed parse_udp_ipv4(const Bytes& roce, std::size_t payload_bytes) {
  return parse(ethernet(0x0800).add(ipv4(payload_bytes + 8)).add(udp(payload_bytes)).add(roce));
}

void check_write_first(const Parsed& parsed) {
  CHECK_EQ(parsed.outcome, ParseOutcome::roce);
  CHECK_EQ(parsed.record.payload_bytes, 4096U);
  CHECK_EQ(parsed.record.dest_qpn, 0x123U);
  CHECK_EQ(parsed.record.psn, 0xfffffeU);
  CHECK_EQ(parsed.record.dma_bytes, 8192U);
  CHECK_EQ(parsed.record.udp_sport, 49152);
  CHECK_EQ(parsed.record.ack_req, 1);
  CHECK_EQ(parsed.record.opcode, 0x06);
  CHECK_EQ(parsed.record.wire_bytes, kWireBytes);
}

TEST("a WRITE_FIRST captured without its payload gives all its fields") {
  const Parsed parsed = parse_udp_ipv4(write_first(), kWriteFirstBytes);
  check_write_first(parsed);
  CHECK_EQ(parsed.record.family, 4);
  const pulse::Address expected = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  CHECK(parsed.record.src == expected);
}

TEST("VLAN tags, QinQ and cooked captures lead to the same record") {
  const Bytes network = ipv4(kWriteFirstBytes + 8).add(udp(kWriteFirstBytes)).add(write_first());
  check_write_first(parse(ethernet(0x8100).u16(5).u16(0x0800).add(network)));
  check_write_first(parse(ethernet(0x88a8).u16(5).u16(0x8100).u16(6).u16(0x0800).add(network)));
  check_write_first(parse(ethernet(0x9100).u16(5).u16(0x8100).u16(6).u16(0x0800).add(network)));
  check_write_first(parse(Bytes().zeros(14).u16(0x0800).add(network), LinkType::linux_sll));
  check_write_first(parse(Bytes().u16(0x0800).zeros(18).add(network), LinkType::linux_sll2));
  CHECK_EQ(parse(network, static_cast<LinkType>(101)).outcome, ParseOutcome::unknown_link_type);
}

TEST("IPv6 is read with and without extension headers") {
  const std::size_t udp_bytes = kWriteFirstBytes + 8;
  const Bytes datagram = udp(kWriteFirstBytes).add(write_first());
  const Parsed plain = parse(ethernet(0x86dd).add(ipv6(udp_bytes)).add(datagram));
  check_write_first(plain);
  CHECK_EQ(plain.record.family, 6);
  CHECK_EQ(plain.record.ecn, 2);
  // Hop-by-hop of 8 bytes, routing of 16, then an atomic fragment header.
  const Bytes extensions = Bytes{43, 0}.zeros(6).add({44, 1}).zeros(14).add({17, 0, 0, 0}).u32(99);
  check_write_first(parse(ethernet(0x86dd).add(ipv6(udp_bytes + 32, 0)).add(extensions).add(datagram)));
  const Bytes fragment = Bytes{17, 0, 0, 1}.u32(99);  // more fragments follow
  CHECK_EQ(parse(ethernet(0x86dd).add(ipv6(udp_bytes + 8, 44)).add(fragment).add(datagram)).outcome,
           ParseOutcome::ip_fragment);
}

TEST("one VXLAN or Geneve tunnel is entered, a second is not, and ECN is that of the inner packet") {
  const Bytes inner_ip = ipv4(kWriteFirstBytes + 8, 17, 3).add(udp(kWriteFirstBytes)).add(write_first());
  const Bytes inner = ethernet(0x0800).add(inner_ip);
  const std::size_t inner_bytes = 14 + 20 + 8 + kWriteFirstBytes;
  const auto outer = [](std::size_t bytes, int port) {
    return ethernet(0x0800).add(ipv4(bytes + 8)).add(udp(bytes, port));
  };
  const Bytes vxlan_header = Bytes{8, 0, 0, 0}.u32(42 << 8);
  const Parsed vxlan = parse(outer(8 + inner_bytes, 4789).add(vxlan_header).add(inner));
  check_write_first(vxlan);
  CHECK_EQ(vxlan.record.ecn, 3);
  const Bytes geneve_header = Bytes{1, 0, 0x65, 0x58}.u32(42 << 8).zeros(4);  // one option
  check_write_first(parse(outer(12 + inner_bytes, 6081).add(geneve_header).add(inner)));
  const Bytes geneve_ip = Bytes{0, 0, 0x08, 0x00}.u32(42 << 8);  // no Ethernet header inside
  check_write_first(parse(outer(8 + inner_bytes - 14, 6081).add(geneve_ip).add(inner_ip)));
  const Bytes twice = outer(8 + inner_bytes, 4789).add(vxlan_header).add(inner);
  CHECK_EQ(parse(outer(8 + twice.size() + 4096, 4789).add(vxlan_header).add(twice)).outcome,
           ParseOutcome::other_udp_port);
}

TEST("an ACK gives syndrome and MSN, a read response also its payload") {
  const Parsed ack = parse_udp_ipv4(bth(0x11).add({0x60, 0x00, 0x00, 0x07}), 12 + 4 + 4);
  CHECK_EQ(ack.outcome, ParseOutcome::roce);
  CHECK_EQ(ack.record.syndrome, 0x60);
  CHECK_EQ(ack.record.msn, 7U);
  CHECK_EQ(ack.record.payload_bytes, 0U);
  const Parsed response = parse_udp_ipv4(bth(0x10, 3).add({0x1f, 0, 0, 9}), 12 + 4 + 61 + 3 + 4);
  CHECK_EQ(response.record.payload_bytes, 61U);
  CHECK_EQ(response.record.msn, 9U);
}

TEST("immediate data follows RETH, and DETH stands before it") {
  const Parsed write = parse_udp_ipv4(bth(0x0b).add(kReth).u32(0x2000), 12 + 16 + 4 + 4);
  CHECK_EQ(write.record.immediate, 0x2000U);
  CHECK_EQ(write.record.dma_bytes, 8192U);
  CHECK_EQ(write.record.payload_bytes, 0U);
  const Parsed datagram = parse_udp_ipv4(bth(0x65).u32(1).u8(0).u24(0x77).u32(0xabcd), 12 + 8 + 4 + 100 + 4);
  CHECK_EQ(datagram.record.src_qpn, 0x77U);
  CHECK_EQ(datagram.record.immediate, 0xabcdU);
  CHECK_EQ(datagram.record.payload_bytes, 100U);
}

TEST("a CNP has no payload although 16 reserved bytes follow its BTH") {
  const Parsed cnp = parse_udp_ipv4(bth(0x81).zeros(16), 32);
  CHECK_EQ(cnp.outcome, ParseOutcome::roce);
  CHECK_EQ(cnp.record.payload_bytes, 0U);
  CHECK_EQ(cnp.record.dest_qpn, 0x123U);
}

TEST("every other packet is counted by its kind and leaves nothing half parsed") {
  const Bytes good = udp(kWriteFirstBytes).add(write_first());
  const std::size_t bytes = kWriteFirstBytes + 8;
  const auto outcome = [](const Bytes& packet) {
    const Parsed parsed = parse(packet);
    CHECK_EQ(parsed.record.family, 0);
    CHECK_EQ(parsed.record.udp_sport, 0);
    CHECK_EQ(parsed.record.wire_bytes, kWireBytes);
    return parsed.outcome;
  };
  CHECK_EQ(outcome(ethernet(0x0806).zeros(28)), ParseOutcome::not_ip);
  CHECK_EQ(outcome(ethernet(0x8915).zeros(60)), ParseOutcome::roce_v1);
  CHECK_EQ(outcome(ethernet(0x0800).add(ipv4(bytes, 6)).add(good)), ParseOutcome::not_udp);
  CHECK_EQ(outcome(ethernet(0x0800).add(ipv4(bytes, 17, 0, 0x2000)).add(good)), ParseOutcome::ip_fragment);
  CHECK_EQ(outcome(ethernet(0x0800).add(ipv4(bytes, 17, 0, 0x0001)).add(good)), ParseOutcome::ip_fragment);
  CHECK_EQ(outcome(ethernet(0x86dd).add(ipv4(bytes)).add(good).zeros(20)), ParseOutcome::bad_ip_header);
  CHECK_EQ(outcome(ethernet(0x0800).add(ipv4(bytes)).add(udp(100, 53)).zeros(20)), ParseOutcome::other_udp_port);
  CHECK_EQ(outcome(ethernet(0x0800).add(ipv4(bytes - 1)).add(good)), ParseOutcome::bad_udp_length);
  CHECK_EQ(outcome(ethernet(0x0800).add(ipv4(8 + 15)).add(udp(15)).zeros(15)), ParseOutcome::bad_udp_length);
  CHECK_EQ(parse_udp_ipv4(bth(0x06).add(kReth), 12 + 16 + 3).outcome, ParseOutcome::bad_udp_length);
  CHECK_EQ(parse_udp_ipv4(bth(0x15).zeros(30), 42).outcome, ParseOutcome::unknown_opcode);
  CHECK_EQ(parse_udp_ipv4(Bytes{0x06, 0x41}.zeros(60), 62).outcome, ParseOutcome::bad_bth);
}

TEST("a packet cut anywhere inside its headers is truncated, never misread") {
  const Bytes whole = ethernet(0x8100).u16(5).u16(0x0800).add(ipv4(kWriteFirstBytes + 8)).add(udp(kWriteFirstBytes));
  const std::vector<std::byte> bytes = Bytes(whole).add(write_first()).get();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    PacketRecord record{};
    CHECK_EQ(pulse::parse_packet(cut, LinkType::ethernet, kWireBytes, record), ParseOutcome::truncated_headers);
  }
}

TEST("the opcode table knows 23 RC, 12 UC and 2 UD operations and the CNP") {
  int known = 0;
  for (int opcode = 0; opcode < 256; ++opcode) {
    known += pulse::opcode_layout(static_cast<std::uint8_t>(opcode)).known ? 1 : 0;
  }
  CHECK_EQ(known, 23 + 12 + 2 + 1);
  CHECK_EQ(pulse::opcode_layout(0x2b).header_bytes, 20);
  CHECK(!pulse::opcode_layout(0x2c).known);  // no reads on unreliable connections
}

TEST("parse_batch fills one record per packet in order") {
  pulse::PacketBatch batch;
  const Bytes packet = ethernet(0x0800).add(ipv4(kWriteFirstBytes + 8)).add(udp(kWriteFirstBytes)).add(write_first());
  batch.append(100, kWireBytes, LinkType::ethernet, packet.get());
  batch.append(200, 60, LinkType::ethernet, ethernet(0x0806).zeros(28).get());
  std::vector<PacketRecord> records(2);
  pulse::parse_batch(batch, records);
  check_write_first({static_cast<ParseOutcome>(records[0].outcome), records[0]});
  CHECK_EQ(records[0].ns, 100);
  CHECK_EQ(records[1].ns, 200);
  CHECK_EQ(records[1].outcome, static_cast<std::uint8_t>(ParseOutcome::not_ip));
}

}  // namespace
