// SPDX-License-Identifier: Apache-2.0
//
// The short way through the headers of nearly all packets of a RoCEv2 network:
// Ethernet, at most one VLAN tag, IPv4 without options, UDP, BTH and at most a RETH
// or an AETH. Whatever looks different in the least is left to parse_packet(), which
// makes the same record of it, or names what is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "pulse/byte_order.hpp"
#include "pulse/packet_batch.hpp"
#include "pulse/packet_parser.hpp"
#include "roce_headers.hpp"

namespace pulse {

namespace detail {

// Headers from the EtherType on, and the extension headers of BTH that are read here.
inline constexpr std::size_t kTypeAt = 12;
inline constexpr std::size_t kVlanBytes = 4;
inline constexpr std::size_t kUdpBehindType = 2 + 20;
inline constexpr std::size_t kBthBehindType = kUdpBehindType + 8;
inline constexpr std::size_t kExtensionBehindType = kBthBehindType + 12;

inline constexpr std::uint32_t kTypeIpv4AndNoOptions = 0x450008;  // EtherType, version and length, as they load
inline constexpr std::uint16_t kTypeVlan = 0x0081;
inline constexpr std::uint32_t kFragmentAndProtocol = 0xff00ff3f;  // not "don't fragment", not the time to live
inline constexpr std::uint32_t kWholeUdp = 0x11000000;
inline constexpr std::uint16_t kRocePort = 4791;

inline void store(PacketRecord& record, std::size_t at, std::uint64_t value) noexcept {
  std::memcpy(reinterpret_cast<std::byte*>(&record) + at, &value, sizeof(value));
}

// An IPv4 address in network order as the second half of its mapped form.
inline std::uint64_t mapped(const std::byte* address) noexcept {
  return 0xffff0000U | static_cast<std::uint64_t>(load_little<std::uint32_t>(address)) << 32U;
}

}  // namespace detail

// The long way, for any packet.
[[nodiscard]] ParseOutcome parse_in_full(std::span<const std::byte> captured, LinkType link_type,
                                         std::uint32_t wire_bytes, PacketRecord& record) noexcept;

// True when the packet took the short way; every field of `record` but `ns` is written then, else none.
[[nodiscard]] inline bool parse_shortly(std::span<const std::byte> captured, LinkType link_type,
                                        std::uint32_t wire_bytes, PacketRecord& record) noexcept {
  using namespace detail;
  // Room for a VLAN tag too: shorter packets take the long way.
  if (link_type != LinkType::ethernet || captured.size() < kTypeAt + kVlanBytes + kExtensionBehindType) return false;
  const std::byte* type = captured.data() + kTypeAt;
  if (load_little<std::uint16_t>(type) == kTypeVlan) type += kVlanBytes;
  const auto udp = load_big<std::uint64_t>(type + kUdpBehindType);  // ports, length, checksum
  const auto bth = load_big<std::uint64_t>(type + kBthBehindType);  // opcode, flags, key, reserved, queue pair
  const std::uint32_t ip_bytes = load_big<std::uint16_t>(type + 4);
  const std::uint32_t udp_bytes = static_cast<std::uint16_t>(udp >> 16U);
  const auto opcode = static_cast<std::uint8_t>(bth >> 56U);
  const OpcodeLayout& layout = kOpcodeLayouts[opcode];
  const bool usual = (load_little<std::uint32_t>(type) & 0xffffffU) == kTypeIpv4AndNoOptions &&
                     (load_little<std::uint32_t>(type + 8) & kFragmentAndProtocol) == kWholeUdp &&
                     static_cast<std::uint16_t>(udp >> 32U) == kRocePort && udp_bytes + 20 <= ip_bytes &&
                     (bth >> 48U & 0x0fU) == 0 && layout.known && (layout.headers & ~unsigned{kReth | kAeth}) == 0;
  if (!usual) return false;
  const std::uint32_t pad_bytes = static_cast<std::uint32_t>(bth >> 52U) & 3U;
  const std::uint32_t overhead_bytes = 8 + 12 + layout.header_bytes + pad_bytes + 4;
  const auto left = static_cast<std::size_t>(captured.data() + captured.size() - type);
  if (udp_bytes < overhead_bytes || left < kExtensionBehindType + layout.header_bytes) return false;
  const auto tail = load_big<std::uint32_t>(type + kBthBehindType + 8);  // request to acknowledge, PSN
  const std::uint64_t payload_bytes = layout.payload ? udp_bytes - overhead_bytes : 0;
  const std::byte* extension = type + kExtensionBehindType;
  std::uint64_t dma_bytes = 0;
  std::uint64_t msn = 0;
  std::uint64_t syndrome = 0;
  if (layout.headers == kReth) {
    dma_bytes = load_big<std::uint32_t>(extension + 12);
  } else if (layout.headers == kAeth) {
    const auto aeth = load_big<std::uint32_t>(extension);
    syndrome = aeth >> 24U;
    msn = aeth & 0xffffffU;
  } else if (layout.headers != 0) {
    return false;
  }
  // Fields in pairs: one store each instead of one per field.
  static_assert(offsetof(PacketRecord, src) == 8 && offsetof(PacketRecord, wire_bytes) == 40 &&
                offsetof(PacketRecord, dma_bytes) == 56 && offsetof(PacketRecord, outcome) == 79);
  const std::uint64_t ecn = std::to_integer<std::uint64_t>(type[3]) & 3U;
  store(record, 8, 0);
  store(record, 16, mapped(type + 14));
  store(record, 24, 0);
  store(record, 32, mapped(type + 18));
  store(record, 40, wire_bytes | payload_bytes << 32U);
  store(record, 48, (bth & 0xffffffU) | static_cast<std::uint64_t>(tail & 0xffffffU) << 32U);
  store(record, 56, dma_bytes);
  store(record, 64, msn);
  store(record, 72,
        udp >> 48U | std::uint64_t{opcode} << 16U | syndrome << 24U | ecn << 32U |
            static_cast<std::uint64_t>(tail >> 31U) << 40U | std::uint64_t{4} << 48U);
  return true;
}

}  // namespace pulse
