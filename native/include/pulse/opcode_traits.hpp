// SPDX-License-Identifier: Apache-2.0
//
// What a BTH opcode means to the meter: its place in a message, which PSN space
// it counts in, and what it carries.
#pragma once

#include <array>
#include <cstdint>

#include "pulse/opcode.hpp"

namespace pulse {

enum class OpcodeGroup : std::uint8_t {
  other,          // counted, not interpreted
  request,        // SEND and WRITE: data in the sender's PSN space
  read_request,   // takes as many PSNs as its response has packets
  atomic,         // one-packet request
  read_response,  // data in the other direction's PSN space
  acknowledge,    // ACK or NAK
  atomic_response,
  cnp,
};

enum class MessagePlace : std::uint8_t { first, middle, last, only };

struct OpcodeTraits {
  OpcodeGroup group = OpcodeGroup::other;
  MessagePlace place = MessagePlace::only;
  bool immediate = false;
  bool reth = false;  // carries the length of the whole message
};

namespace detail {

constexpr OpcodeTraits traits_of_operation(unsigned code) {
  using enum OpcodeGroup;
  using enum MessagePlace;
  switch (code) {
    case operation::kSendFirst:
      return {request, first};
    case operation::kSendMiddle:
      return {request, middle};
    case operation::kSendLast:
      return {request, last};
    case operation::kSendLastImmediate:
      return {request, last, true};
    case operation::kSendLastInvalidate:
      return {request, last};
    case operation::kSendOnly:
      return {request, only};
    case operation::kSendOnlyImmediate:
      return {request, only, true};
    case operation::kSendOnlyInvalidate:
      return {request, only};
    case operation::kWriteFirst:
      return {request, first, false, true};
    case operation::kWriteMiddle:
      return {request, middle};
    case operation::kWriteLast:
      return {request, last};
    case operation::kWriteLastImmediate:
      return {request, last, true};
    case operation::kWriteOnly:
      return {request, only, false, true};
    case operation::kWriteOnlyImmediate:
      return {request, only, true, true};
    case operation::kReadRequest:
      return {read_request, only, false, true};
    case operation::kReadResponseFirst:
      return {read_response, first};
    case operation::kReadResponseMiddle:
      return {read_response, middle};
    case operation::kReadResponseLast:
      return {read_response, last};
    case operation::kReadResponseOnly:
      return {read_response, only};
    case operation::kAcknowledge:
      return {acknowledge, only};
    case operation::kAtomicAcknowledge:
      return {atomic_response, only};
    case operation::kCompareSwap:
      return {atomic, only};
    case operation::kFetchAdd:
      return {atomic, only};
    default:
      return {};
  }
}

constexpr std::array<OpcodeTraits, 256> make_opcode_traits() {
  std::array<OpcodeTraits, 256> table{};
  for (unsigned opcode = 0; opcode < 128; ++opcode) {
    // Above are CNP and vendor or XRC operations; of these only CNP is read.
    table[opcode] = traits_of_operation(opcode & 0x1f);
  }
  table[kCnp].group = OpcodeGroup::cnp;
  return table;
}

inline constexpr auto kOpcodeTraits = make_opcode_traits();

}  // namespace detail

[[nodiscard]] constexpr const OpcodeTraits& opcode_traits(std::uint8_t opcode) noexcept {
  return detail::kOpcodeTraits[opcode];
}

[[nodiscard]] constexpr Transport opcode_transport(std::uint8_t opcode) noexcept {
  return static_cast<Transport>(opcode >> 5);
}

// Whether the packet begins a message or is one by itself.
[[nodiscard]] constexpr bool starts_message(MessagePlace place) noexcept {
  return place == MessagePlace::first || place == MessagePlace::only;
}

}  // namespace pulse
