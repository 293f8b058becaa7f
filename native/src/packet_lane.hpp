// SPDX-License-Identifier: Apache-2.0
//
// The little that the meter needs of a MIDDLE packet, and the short way to it. Nearly
// all packets of a busy network are such, with Ethernet, at most one VLAN tag, IPv4
// without options, UDP and BTH, and no congestion mark. Whatever looks different in
// the least takes the long way, parse_packet().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pulse/byte_order.hpp"
#include "pulse/flow_table.hpp"
#include "pulse/opcode.hpp"
#include "pulse/packet_batch.hpp"
#include "pulse/psn.hpp"

namespace pulse {

// Left as it is until it is read: a block of them lies on the stack.
struct PacketLane {
  static constexpr std::uint32_t kAckRequest = 1U << 31;

  std::uint64_t addresses;
  std::uint32_t tail;  // with the addresses a ShortKey
  std::uint32_t psn;   // and kAckRequest
  std::uint32_t payload_bytes;

  [[nodiscard]] ShortKey key() const noexcept { return ShortKey::of(addresses, tail); }
  void set_key(const ShortKey& key) noexcept {
    addresses = key.addresses();
    tail = key.tail;
  }
  [[nodiscard]] bool is_of(const ShortKey& key) const noexcept {
    return ((addresses ^ key.addresses()) | (tail ^ key.tail)) == 0;
  }
};

namespace detail {

constexpr std::array<bool, 256> make_middle_opcodes() {
  std::array<bool, 256> table{};
  for (const unsigned transport : {0U, 1U}) {  // RC and UC
    table[transport << 5U | operation::kSendMiddle] = true;
    table[transport << 5U | operation::kWriteMiddle] = true;
  }
  return table;
}

inline constexpr auto kMiddleOpcodes = make_middle_opcodes();

// Bytes of the headers, from the EtherType on, that are the same in all packets of this kind, eight at a
// time as they load: all are compared at once.
struct Pattern {
  std::size_t at;
  std::uint64_t mask;
  std::uint64_t value;
};
inline constexpr Pattern kIpStart{0, 0x0000000000ffffffU, 0x0000000000450008U};    // EtherType, version, length
inline constexpr Pattern kIpMiddle{8, 0x00000000ff00ff3fU, 0x0000000011000000U};   // no fragment, UDP
inline constexpr Pattern kUdpStart{22, 0x00000000ffff0000U, 0x00000000b7120000U};  // port 4791
inline constexpr Pattern kBthStart{30, 0x0000000000000f00U, 0};                    // version 0

inline constexpr std::size_t kEtherTypeAt = 12;
inline constexpr std::size_t kAddressesAt = 14;
inline constexpr std::size_t kBthTailAt = 38;
inline constexpr std::size_t kBthEnd = 42;
inline constexpr std::size_t kVlanTagBytes = 4;
inline constexpr std::uint16_t kVlanType = 0x0081;
inline constexpr std::uint64_t kCongestionMark = 3U << 24U;
inline constexpr std::uint32_t kFixedUdpBytes = 8 + 12 + 4;  // UDP, BTH and ICRC

inline std::uint64_t difference(const std::byte* type, const Pattern& pattern, std::uint64_t& word) noexcept {
  word = load_little<std::uint64_t>(type + pattern.at);
  return (word ^ pattern.value) & pattern.mask;
}

}  // namespace detail

// False when the packet has to take the long way.
[[nodiscard, gnu::always_inline]] inline bool read_lane(const std::byte* packet, std::size_t captured_bytes,
                                                        LinkType link_type, PacketLane& lane) noexcept {
  using namespace detail;
  // Room for a VLAN tag too: a shorter packet is no MIDDLE with payload.
  if (captured_bytes < kEtherTypeAt + kVlanTagBytes + kBthEnd || link_type != LinkType::ethernet) return false;
  const std::byte* type = packet + kEtherTypeAt;
  if (load_little<std::uint16_t>(type) == kVlanType) type += kVlanTagBytes;
  std::uint64_t ip = 0;
  std::uint64_t protocol = 0;
  std::uint64_t udp = 0;
  std::uint64_t bth = 0;
  const std::uint64_t differs = difference(type, kIpStart, ip) | difference(type, kIpMiddle, protocol) |
                                difference(type, kUdpStart, udp) | difference(type, kBthStart, bth);
  const std::uint32_t ip_bytes = byte_swap(static_cast<std::uint16_t>(ip >> 32U));
  const std::uint32_t udp_bytes = byte_swap(static_cast<std::uint16_t>(udp >> 32U));
  const std::uint32_t overhead_bytes = kFixedUdpBytes + (static_cast<std::uint32_t>(bth >> 12U) & 3U);
  if (differs != 0 || !kMiddleOpcodes[bth & 0xffU] || (ip & kCongestionMark) == kCongestionMark ||
      udp_bytes + 20 > ip_bytes || udp_bytes < overhead_bytes) {
    return false;
  }
  const auto tail = load_big<std::uint32_t>(type + kBthTailAt);  // request to acknowledge, PSN
  lane.addresses = load_little<std::uint64_t>(type + kAddressesAt);
  lane.tail = byte_swap(static_cast<std::uint32_t>(bth >> 32U)) & 0xffffffU;
  lane.psn = tail & (kPsnMask | PacketLane::kAckRequest);
  lane.payload_bytes = udp_bytes - overhead_bytes;
  return true;
}

}  // namespace pulse
