// SPDX-License-Identifier: Apache-2.0
//
// Windows of an interval as frames of version 0.1 hold them; newer ones have series (window_series.hpp).
// Varints, zigzag where a number may be negative:
//
//   flow count, then per flow, ascending:
//     flow - flow before (the first: flow)
//     unit: bytes per packet that most windows have
//     run count, then per run of windows without a hole between them:
//       zigzag(index - base) for the first run, empty windows skipped for later ones
//       length, then per window:
//         zigzag(packets - packets of the window before; the flow's first: packets)
//         zigzag(bytes - packets * unit)
//
// base = floor(begin_ns / window_ns); a window starts at index * window_ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pulse/records.hpp"

namespace pulse {

// Reads a blob that may be damaged or hostile: at most `max_windows` rows, each
// of which takes two bytes of the blob. Bytes beyond 32 bits saturate. Throws
// std::invalid_argument when the blob is not one, std::length_error when it is too long.
[[nodiscard]] std::vector<WindowRecord> decode_windows(std::span<const std::uint8_t> blob, std::int64_t begin_ns,
                                                       std::uint64_t window_ns, std::size_t max_windows);

}  // namespace pulse
