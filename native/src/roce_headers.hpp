// SPDX-License-Identifier: Apache-2.0
//
// The part of the parser behind the UDP header.
#pragma once

#include <cstddef>
#include <span>

#include "pulse/packet_parser.hpp"

namespace pulse {

// Reads BTH and extension headers from `captured` into `record`. `udp_payload_bytes`
// is what the UDP header says: BTH, extension headers, payload, pad and ICRC.
[[nodiscard]] ParseOutcome parse_roce_headers(std::span<const std::byte> captured, std::size_t udp_payload_bytes,
                                              PacketRecord& record) noexcept;

}  // namespace pulse
