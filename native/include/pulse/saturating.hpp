// SPDX-License-Identifier: Apache-2.0
//
// Counts that stay at their largest value rather than begin anew: that one says "this many or more".
#pragma once

#include <cstdint>
#include <limits>

namespace pulse {

inline void add_saturating(std::uint32_t& count, std::uint32_t more) noexcept {
  if (__builtin_add_overflow(count, more, &count)) count = std::numeric_limits<std::uint32_t>::max();
}

}  // namespace pulse
