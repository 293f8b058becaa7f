// SPDX-License-Identifier: Apache-2.0
//
// Which packets become clock markers. Both ends of a link must choose the same
// packets without talking, so the choice is a fixed function of header fields;
// it is part of the frame format (docs/wire-format.md) and must never change.
#pragma once

#include <cstdint>

namespace pulse {

// The finaliser of splitmix64: every input bit reaches every output bit.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebU;
  x ^= x >> 31;
  return x;
}

// Data packets: one in 64, by PSN and destination queue pair (24 bits each).
[[nodiscard]] constexpr std::uint64_t data_marker_hash(std::uint32_t psn, std::uint32_t dest_qpn) noexcept {
  return mix64(static_cast<std::uint64_t>(dest_qpn) << 24 | psn);
}

inline constexpr unsigned kDataMarkerBits = 6;

[[nodiscard]] constexpr bool is_data_marker(std::uint32_t psn, std::uint32_t dest_qpn) noexcept {
  return (data_marker_hash(psn, dest_qpn) & ((1U << kDataMarkerBits) - 1)) == 0;
}

// ACK and NAK: one in 8, by PSN and MSN (24 bits each). Plain PSN mod 8 would
// never pick an ACK of a stack that acknowledges only message ends.
[[nodiscard]] constexpr std::uint64_t ack_marker_hash(std::uint32_t psn, std::uint32_t msn) noexcept {
  return mix64(static_cast<std::uint64_t>(msn) << 24 | psn);
}

[[nodiscard]] constexpr bool is_ack_marker(std::uint32_t psn, std::uint32_t msn) noexcept {
  return (ack_marker_hash(psn, msn) & 7) == 0;
}

}  // namespace pulse
