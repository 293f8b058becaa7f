// SPDX-License-Identifier: Apache-2.0
//
// Differences of times that nobody vouches for: clocks are set, and captures are made up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pulse {

// In 64 bits that wrap: times of made-up captures may be as far apart as they like.
[[nodiscard]] inline std::int64_t elapsed_ns(std::int64_t from_ns, std::int64_t to_ns) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(to_ns) - static_cast<std::uint64_t>(from_ns));
}

[[nodiscard]] inline std::uint32_t saturated_ns(std::int64_t ns) noexcept {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(ns, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace pulse
