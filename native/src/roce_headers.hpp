// SPDX-License-Identifier: Apache-2.0
//
// The part of the parser behind the UDP header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pulse/opcode.hpp"
#include "pulse/packet_parser.hpp"

namespace pulse {

// Extension headers in their order on the wire, with their sizes.
struct HeaderSize {
  ExtensionHeader header;
  std::uint8_t bytes;
};
inline constexpr std::array<HeaderSize, 7> kHeaderOrder = {
    {{kDeth, 8}, {kReth, 16}, {kAeth, 4}, {kAtomicEth, 28}, {kAtomicAckEth, 8}, {kImmediate, 4}, {kIeth, 4}}};

constexpr OpcodeLayout layout(unsigned headers, bool payload) {
  OpcodeLayout result{static_cast<std::uint8_t>(headers), 0, true, payload};
  for (const HeaderSize& entry : kHeaderOrder) {
    if ((headers & entry.header) != 0) {
      result.header_bytes = static_cast<std::uint8_t>(result.header_bytes + entry.bytes);
    }
  }
  return result;
}

constexpr std::array<OpcodeLayout, 256> make_layouts() {
  using namespace operation;
  std::array<OpcodeLayout, 256> table{};
  constexpr unsigned kUc = static_cast<unsigned>(Transport::uc) << 5U;
  constexpr unsigned kUd = static_cast<unsigned>(Transport::ud) << 5U;
  // Sends and writes are the same for reliable and unreliable connections.
  for (const unsigned transport : {0U, kUc}) {
    for (const auto op : {kSendFirst, kSendMiddle, kSendLast, kSendOnly, kWriteMiddle, kWriteLast}) {
      table[transport + op] = layout(0, true);
    }
    for (const auto op : {kSendLastImmediate, kSendOnlyImmediate, kWriteLastImmediate}) {
      table[transport + op] = layout(kImmediate, true);
    }
    for (const auto op : {kWriteFirst, kWriteOnly}) {
      table[transport + op] = layout(kReth, true);
    }
    table[transport + kWriteOnlyImmediate] = layout(kReth | kImmediate, true);
  }
  table[kReadRequest] = layout(kReth, false);
  for (const auto op : {kReadResponseFirst, kReadResponseLast, kReadResponseOnly}) {
    table[op] = layout(kAeth, true);
  }
  table[kReadResponseMiddle] = layout(0, true);
  table[kAcknowledge] = layout(kAeth, false);
  table[kAtomicAcknowledge] = layout(kAeth | kAtomicAckEth, false);
  table[kCompareSwap] = layout(kAtomicEth, false);
  table[kFetchAdd] = layout(kAtomicEth, false);
  table[kSendLastInvalidate] = layout(kIeth, true);
  table[kSendOnlyInvalidate] = layout(kIeth, true);
  table[kUd + kSendOnly] = layout(kDeth, true);
  table[kUd + kSendOnlyImmediate] = layout(kDeth | kImmediate, true);
  table[kCnp] = layout(0, false);
  return table;
}

inline constexpr auto kOpcodeLayouts = make_layouts();

// Reads BTH and extension headers from `captured` into `record`. `udp_payload_bytes`
// is what the UDP header says: BTH, extension headers, payload, pad and ICRC.
[[nodiscard]] ParseOutcome parse_roce_headers(std::span<const std::byte> captured, std::size_t udp_payload_bytes,
                                              PacketRecord& record) noexcept;

}  // namespace pulse
