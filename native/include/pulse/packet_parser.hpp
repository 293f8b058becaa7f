// SPDX-License-Identifier: Apache-2.0
//
// From the bytes of a captured packet to a PacketRecord: Ethernet or Linux
// cooked capture, VLAN tags, IPv4 or IPv6, at most one VXLAN or Geneve tunnel,
// UDP port 4791 and the RoCEv2 headers. Needs the headers only, never payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pulse/packet_batch.hpp"
#include "pulse/records.hpp"

namespace pulse {

// What became of a packet; everything but `roce` is counted by name and set aside.
enum class ParseOutcome : std::uint8_t {
  roce = 0,
  not_ip,             // ARP, LLDP, 802.3 frames, more than kMaxVlanTags tags
  not_udp,            // TCP, ICMP, ...
  other_udp_port,     // UDP, but neither RoCEv2 nor a tunnel (or a second tunnel inside the first)
  ip_fragment,        // RoCE never fragments; headers of later fragments are missing
  truncated_headers,  // the captured bytes end inside the headers
  bad_ip_header,      // version or a length of the IP header contradicts the rest
  bad_udp_length,     // UDP length contradicts IP, or is too short for its own RoCE headers
  bad_bth,            // transport version other than 0
  roce_v1,            // EtherType 0x8915
  unknown_opcode,     // not an RC, UC or UD operation and not a CNP
  unknown_link_type,
};

inline constexpr std::size_t kParseOutcomes = 12;

// Indexed by ParseOutcome.
inline constexpr std::array<std::string_view, kParseOutcomes> kParseOutcomeNames = {
    "roce",          "not_ip",         "not_udp", "other_udp_port", "ip_fragment",    "truncated_headers",
    "bad_ip_header", "bad_udp_length", "bad_bth", "roce_v1",        "unknown_opcode", "unknown_link_type",
};

inline constexpr int kMaxVlanTags = 4;

// Parses one packet. Every field of `record` but `ns` is written: all of them
// zero except `wire_bytes` and `outcome` unless the outcome is `roce`.
[[nodiscard]] ParseOutcome parse_packet(std::span<const std::byte> captured, LinkType link_type,
                                        std::uint32_t wire_bytes, PacketRecord& record) noexcept;

// Parses a batch. `records` has at least batch.size() entries; entry i belongs to packet i.
void parse_batch(const PacketBatch& batch, std::span<PacketRecord> records) noexcept;

}  // namespace pulse
