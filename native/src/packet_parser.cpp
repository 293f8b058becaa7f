// SPDX-License-Identifier: Apache-2.0
#include "pulse/packet_parser.hpp"

#include <algorithm>

#include "fast_parser.hpp"
#include "pulse/byte_order.hpp"
#include "roce_headers.hpp"

namespace pulse {
namespace {

constexpr std::uint16_t kEtherIpv4 = 0x0800;
constexpr std::uint16_t kEtherIpv6 = 0x86dd;
constexpr std::uint16_t kEtherVlan = 0x8100;
constexpr std::uint16_t kEtherQinq = 0x88a8;
constexpr std::uint16_t kEtherQinqOld = 0x9100;
constexpr std::uint16_t kEtherRoceV1 = 0x8915;
constexpr std::uint16_t kEtherBridged = 0x6558;  // Geneve: an Ethernet frame inside

constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kSllBytes = 16;
constexpr std::size_t kSll2Bytes = 20;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kTunnelBytes = 8;  // VXLAN, and Geneve without options

constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint16_t kPortRoce = 4791;
constexpr std::uint16_t kPortVxlan = 4789;
constexpr std::uint16_t kPortGeneve = 6081;

constexpr int kMaxIpv6Extensions = 8;

// The bytes of a packet not parsed yet. take() moves past a header, or tells
// that the captured bytes end inside it.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) noexcept : at_(bytes.data()), left_(bytes.size()) {}

  [[nodiscard]] const std::byte* take(std::size_t bytes) noexcept {
    if (left_ < bytes) {
      return nullptr;
    }
    const std::byte* header = at_;
    at_ += bytes;
    left_ -= bytes;
    return header;
  }

  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return {at_, left_}; }

 private:
  const std::byte* at_;
  std::size_t left_;
};

// What the IP header says about the datagram behind it.
struct Datagram {
  std::uint8_t protocol = 0;
  std::size_t bytes = 0;  // of the IP payload, told by the header
};

// Each step returns `roce` to go on, or the outcome that ends the parse.
constexpr ParseOutcome kGoOn = ParseOutcome::roce;

[[nodiscard]] bool is_vlan(std::uint16_t ether_type) noexcept {
  return ether_type == kEtherVlan || ether_type == kEtherQinq || ether_type == kEtherQinqOld;
}

ParseOutcome skip_vlan_tags(Cursor& cursor, std::uint16_t& ether_type) noexcept {
  for (int tags = 0; is_vlan(ether_type); ++tags) {
    if (tags == kMaxVlanTags) {
      return ParseOutcome::not_ip;
    }
    const std::byte* tag = cursor.take(4);
    if (tag == nullptr) {
      return ParseOutcome::truncated_headers;
    }
    ether_type = load_big<std::uint16_t>(tag + 2);
  }
  return kGoOn;
}

// The link-layer header and VLAN tags.
ParseOutcome take_link_header(Cursor& cursor, LinkType link_type, std::uint16_t& ether_type) noexcept {
  std::size_t bytes = 0;
  std::size_t type_at = 0;
  switch (link_type) {
    case LinkType::ethernet:
      bytes = kEthernetBytes;
      type_at = 12;
      break;
    case LinkType::linux_sll:
      bytes = kSllBytes;
      type_at = 14;
      break;
    case LinkType::linux_sll2:
      bytes = kSll2Bytes;
      type_at = 0;
      break;
    default:
      return ParseOutcome::unknown_link_type;
  }
  const std::byte* header = cursor.take(bytes);
  if (header == nullptr) {
    return ParseOutcome::truncated_headers;
  }
  ether_type = load_big<std::uint16_t>(header + type_at);
  return skip_vlan_tags(cursor, ether_type);
}

ParseOutcome take_ipv4(Cursor& cursor, PacketRecord& record, Datagram& datagram) noexcept {
  const std::byte* header = cursor.take(kIpv4Bytes);
  if (header == nullptr) {
    return ParseOutcome::truncated_headers;
  }
  const auto version_ihl = std::to_integer<unsigned>(header[0]);
  const std::size_t header_bytes = std::size_t{version_ihl & 0x0fU} * 4U;
  const std::size_t total_bytes = load_big<std::uint16_t>(header + 2);
  if (version_ihl >> 4 != 4 || header_bytes < kIpv4Bytes || total_bytes < header_bytes) {
    return ParseOutcome::bad_ip_header;
  }
  datagram.protocol = std::to_integer<std::uint8_t>(header[9]);
  if (datagram.protocol != kProtocolUdp) {
    return ParseOutcome::not_udp;
  }
  constexpr std::uint16_t kMoreFragmentsOrOffset = 0x3fff;
  if ((load_big<std::uint16_t>(header + 6) & kMoreFragmentsOrOffset) != 0) {
    return ParseOutcome::ip_fragment;
  }
  if (cursor.take(header_bytes - kIpv4Bytes) == nullptr) {
    return ParseOutcome::truncated_headers;
  }
  datagram.bytes = total_bytes - header_bytes;
  record.family = 4;
  record.ecn = std::to_integer<std::uint8_t>(header[1]) & 3U;
  for (auto [address, at] : {std::pair{&record.src, 12}, std::pair{&record.dst, 16}}) {
    address->fill(0);
    (*address)[10] = 0xff;
    (*address)[11] = 0xff;
    std::memcpy(address->data() + 12, header + at, 4);
  }
  return kGoOn;
}

// Moves past IPv6 extension headers to the UDP header.
ParseOutcome skip_ipv6_extensions(Cursor& cursor, std::uint8_t next, Datagram& datagram) noexcept {
  constexpr std::uint8_t kHopByHop = 0;
  constexpr std::uint8_t kRouting = 43;
  constexpr std::uint8_t kFragment = 44;
  constexpr std::uint8_t kAuthentication = 51;
  constexpr std::uint8_t kDestination = 60;
  for (int count = 0; next != kProtocolUdp; ++count) {
    const bool sized = next == kHopByHop || next == kRouting || next == kDestination || next == kAuthentication;
    if (!sized && next != kFragment) {
      return ParseOutcome::not_udp;
    }
    const std::byte* header = cursor.take(8);
    if (header == nullptr) {
      return ParseOutcome::truncated_headers;
    }
    std::size_t bytes = 8;
    if (next == kFragment) {
      // A fragment header with neither offset nor more-fragments stands before a whole datagram.
      if ((load_big<std::uint16_t>(header + 2) & 0xfff9U) != 0) {
        return ParseOutcome::ip_fragment;
      }
    } else {
      const auto units = std::to_integer<std::size_t>(header[1]);
      bytes = next == kAuthentication ? std::max<std::size_t>((units + 2) * 4, 8) : (units + 1) * 8;
    }
    if (bytes > datagram.bytes || count == kMaxIpv6Extensions) {
      return ParseOutcome::bad_ip_header;
    }
    if (cursor.take(bytes - 8) == nullptr) {
      return ParseOutcome::truncated_headers;
    }
    datagram.bytes -= bytes;
    next = std::to_integer<std::uint8_t>(header[0]);
  }
  datagram.protocol = next;
  return kGoOn;
}

ParseOutcome take_ipv6(Cursor& cursor, PacketRecord& record, Datagram& datagram) noexcept {
  const std::byte* header = cursor.take(kIpv6Bytes);
  if (header == nullptr) {
    return ParseOutcome::truncated_headers;
  }
  const auto first = load_big<std::uint16_t>(header);
  if (first >> 12 != 6) {
    return ParseOutcome::bad_ip_header;
  }
  datagram.bytes = load_big<std::uint16_t>(header + 4);
  record.family = 6;
  record.ecn = static_cast<std::uint8_t>((first >> 4) & 3U);
  std::memcpy(record.src.data(), header + 8, record.src.size());
  std::memcpy(record.dst.data(), header + 24, record.dst.size());
  return skip_ipv6_extensions(cursor, std::to_integer<std::uint8_t>(header[6]), datagram);
}

ParseOutcome take_ip(Cursor& cursor, std::uint16_t ether_type, PacketRecord& record, Datagram& datagram) noexcept {
  switch (ether_type) {
    case kEtherIpv4:
      return take_ipv4(cursor, record, datagram);
    case kEtherIpv6:
      return take_ipv6(cursor, record, datagram);
    case kEtherRoceV1:
      return ParseOutcome::roce_v1;
    default:
      return ParseOutcome::not_ip;
  }
}

// The tunnel header behind a UDP header, up to the inner packet's EtherType.
ParseOutcome enter_tunnel(Cursor& cursor, std::uint16_t port, std::uint16_t& ether_type) noexcept {
  const std::byte* header = cursor.take(kTunnelBytes);
  if (header == nullptr) {
    return ParseOutcome::truncated_headers;
  }
  if (port == kPortGeneve) {
    const std::size_t option_bytes = (std::to_integer<std::size_t>(header[0]) & 0x3fU) * 4U;
    if (cursor.take(option_bytes) == nullptr) {
      return ParseOutcome::truncated_headers;
    }
    ether_type = load_big<std::uint16_t>(header + 2);
    if (ether_type != kEtherBridged) {
      return kGoOn;  // an IP packet without Ethernet header
    }
  }
  return take_link_header(cursor, LinkType::ethernet, ether_type);
}

// From the EtherType to the RoCE headers, through at most one tunnel.
ParseOutcome parse_network(Cursor& cursor, std::uint16_t ether_type, PacketRecord& record) noexcept {
  for (bool inside_tunnel = false;; inside_tunnel = true) {
    Datagram datagram;
    if (const auto outcome = take_ip(cursor, ether_type, record, datagram); outcome != kGoOn) {
      return outcome;
    }
    const std::byte* udp = cursor.take(kUdpBytes);
    if (udp == nullptr) {
      return ParseOutcome::truncated_headers;
    }
    const auto port = load_big<std::uint16_t>(udp + 2);
    const std::size_t udp_bytes = load_big<std::uint16_t>(udp + 4);
    if (udp_bytes < kUdpBytes || udp_bytes > datagram.bytes) {
      return ParseOutcome::bad_udp_length;
    }
    if (port == kPortRoce) {
      record.udp_sport = load_big<std::uint16_t>(udp);
      return parse_roce_headers(cursor.rest(), udp_bytes - kUdpBytes, record);
    }
    if (inside_tunnel || (port != kPortVxlan && port != kPortGeneve)) {
      return ParseOutcome::other_udp_port;
    }
    if (const auto outcome = enter_tunnel(cursor, port, ether_type); outcome != kGoOn) {
      return outcome;
    }
  }
}

}  // namespace

ParseOutcome parse_packet(std::span<const std::byte> captured, LinkType link_type, std::uint32_t wire_bytes,
                          PacketRecord& record) noexcept {
  if (parse_shortly(captured, link_type, wire_bytes, record)) {
    return ParseOutcome::roce;
  }
  return parse_in_full(captured, link_type, wire_bytes, record);
}

ParseOutcome parse_in_full(std::span<const std::byte> captured, LinkType link_type, std::uint32_t wire_bytes,
                           PacketRecord& record) noexcept {
  const std::int64_t ns = record.ns;
  record = PacketRecord{};
  Cursor cursor(captured);
  std::uint16_t ether_type = 0;
  ParseOutcome outcome = take_link_header(cursor, link_type, ether_type);
  if (outcome == kGoOn) {
    outcome = parse_network(cursor, ether_type, record);
  }
  if (outcome != ParseOutcome::roce) {
    record = PacketRecord{};  // nothing half parsed leaves this function
  }
  record.ns = ns;
  record.wire_bytes = wire_bytes;
  record.outcome = static_cast<std::uint8_t>(outcome);
  return outcome;
}

void parse_batch(const PacketBatch& batch, std::span<PacketRecord> records) noexcept {
  const auto ns = batch.ns();
  const auto wire_bytes = batch.wire_bytes();
  const auto link_types = batch.link_types();
  for (std::size_t index = 0; index < batch.size(); ++index) {
    records[index].ns = ns[index];
    static_cast<void>(parse_packet(batch.data(index), link_types[index], wire_bytes[index], records[index]));
  }
}

}  // namespace pulse
