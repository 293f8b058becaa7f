// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pulse {

// floor(ns / window_ns) without a division.
class WindowClock {
 public:
  explicit WindowClock(std::uint64_t window_ns) noexcept
      : window_ns_(window_ns), inverse_(static_cast<std::uint64_t>(-1) / window_ns) {}

  [[nodiscard]] std::int64_t index(std::int64_t ns) const noexcept {
    if (ns < 0) return -static_cast<std::int64_t>(positive_index(static_cast<std::uint64_t>(-(ns + 1)))) - 1;
    return static_cast<std::int64_t>(positive_index(static_cast<std::uint64_t>(ns)));
  }

  [[nodiscard]] std::uint64_t window_ns() const noexcept { return window_ns_; }

 private:
  [[nodiscard]] std::uint64_t positive_index(std::uint64_t ns) const noexcept {
    __extension__ using Wide = unsigned __int128;
    const auto quotient = static_cast<std::uint64_t>((static_cast<Wide>(ns) * inverse_) >> 64);
    // The rounded inverse leaves the quotient at most two too small.
    const std::uint64_t rest = ns - quotient * window_ns_;
    return quotient + (rest >= window_ns_ ? 1 : 0) + (rest >= 2 * window_ns_ ? 1 : 0);
  }

  std::uint64_t window_ns_;
  std::uint64_t inverse_;
};

}  // namespace pulse
