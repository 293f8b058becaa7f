// SPDX-License-Identifier: Apache-2.0
#include "time_scale.hpp"

#include <limits>

namespace pulse {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr unsigned kNsExponent = 9;
// Finer than this, 64 bits of ticks do not even hold a second.
constexpr unsigned kMaxDecimalExponent = 19;
constexpr unsigned kMaxBinaryExponent = 63;

}  // namespace

TimeScale::TimeScale(std::uint8_t resolution, std::int64_t offset_s) noexcept
    : offset_ns_(static_cast<Wide>(offset_s) * kNsPerSecond) {
  const unsigned exponent = resolution & 0x7fU;
  if ((resolution & 0x80U) != 0) {
    if (exponent <= kMaxBinaryExponent) {
      ticks_per_unit_ = static_cast<Wide>(1) << exponent;
      ns_per_unit_ = kNsPerSecond;
    }
    return;
  }
  if (exponent > kMaxDecimalExponent) {
    return;
  }
  ns_per_unit_ = 1;
  for (unsigned power = exponent; power < kNsExponent; ++power) {
    ns_per_unit_ *= 10;
  }
  for (unsigned power = kNsExponent; power < exponent; ++power) {
    ticks_per_unit_ *= 10;
  }
}

std::optional<std::int64_t> TimeScale::to_ns(std::uint64_t ticks) const noexcept {
  if (ns_per_unit_ == 0) {
    return std::nullopt;
  }
  Wide ns = static_cast<Wide>(ticks) * ns_per_unit_;
  if (ticks_per_unit_ != 1) {  // wide division is slow, and the usual resolutions need none
    ns /= ticks_per_unit_;
  }
  ns += offset_ns_;
  if (ns < 0 || ns > std::numeric_limits<std::int64_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(ns);
}

}  // namespace pulse
