// SPDX-License-Identifier: Apache-2.0
//
// From the ticks of a pcapng interface to nanoseconds.
#pragma once

#include <cstdint>
#include <optional>

namespace pulse {

class TimeScale {
 public:
  // `resolution` is the if_tsresol option: the exponent of a negative power of
  // 10, or of 2 when its top bit is set. `offset_s` is if_tsoffset.
  explicit TimeScale(std::uint8_t resolution = 6, std::int64_t offset_s = 0) noexcept;

  // Nothing when the time is before 1970, after 2262, or the resolution absurd.
  [[nodiscard]] std::optional<std::int64_t> to_ns(std::uint64_t ticks) const noexcept;

 private:
  __extension__ using Wide = __int128;

  Wide ticks_per_unit_ = 1;       // ns = ticks * ns_per_unit / ticks_per_unit
  std::int64_t ns_per_unit_ = 0;  // 0: no usable resolution
  Wide offset_ns_ = 0;
};

}  // namespace pulse
