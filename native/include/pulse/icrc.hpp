// SPDX-License-Identifier: Apache-2.0
//
// The invariant CRC that ends every RoCEv2 packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pulse {

// ICRC of a RoCEv2 packet given from its IP header to the end of the padded
// payload, the ICRC itself excluded; header fields that routers may change do
// not enter. The packet carries the value in little-endian order. Nothing when
// the bytes are not IPv4 or IPv6 with UDP and a BTH.
[[nodiscard]] std::optional<std::uint32_t> icrc(std::span<const std::byte> ip_packet) noexcept;

}  // namespace pulse
