// SPDX-License-Identifier: Apache-2.0
//
// The filter that the kernel runs on every packet of an interface, as a classic BPF
// program: what is no RoCEv2 never reaches the ring, and of what does only the headers.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace pulse::live {

enum class Selection : std::uint8_t {
  all,      // every packet to UDP port 4791
  steered,  // of these all but MIDDLE packets of messages
};

// IPv6 extension headers that the filter follows; a packet with more is not taken.
inline constexpr int kMaxFilterExtensions = 2;

// Takes packets as parse_packet() reads them: up to four VLAN tags beside one that the kernel has taken off, IPv4 or
// IPv6, at most one VXLAN or Geneve tunnel. A packet is cut off behind the longest headers that its BTH may have.
[[nodiscard]] std::vector<sock_filter> make_filter(Selection selection);

}  // namespace pulse::live
