// SPDX-License-Identifier: Apache-2.0
//
// Windows of a flow as entries: the form in which the meter keeps them, and the one in
// which frames carry them. An entry is
//
//   0ggggggp             g empty windows before it (0..63), p + 1 packets of the usual size
//   10dddddd             none before it, d - 32 packets more than in the entry before, of the usual size
//   11000abl ...         anything else: zigzag(windows skipped) unless a, length - 1 when l, packets,
//                        zigzag(bytes - packets * usual size) when b; varints (varint.hpp)
//
// The usual size is the largest floor(bytes / packets) of the entries before, 0 at first.
// The first entry's windows are counted from index 0; a window starts at index * window_ns.
// Entries may go back in time and may come twice for one window: sums add.
//
// A series section holds: flow count, then per flow, ascending, flow - flow before (the
// first: flow), bytes of its entries, entries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pulse/records.hpp"

namespace pulse {

// One window, or a piece: `length` windows in a row that are known by their sums only.
struct Window {
  std::int64_t index;
  std::uint64_t bytes;
  std::uint32_t packets;
  std::uint32_t length = 1;
};

// What the next entry refers to.
struct WindowContext {
  static constexpr std::uint64_t kMaxShortGap = 63;
  static constexpr std::uint32_t kShortPackets = 2;
  static constexpr std::uint8_t kNextWindow = 0x80;
  static constexpr std::uint32_t kStepBias = 32;
  static constexpr std::uint8_t kLong = 0xc0;
  static constexpr std::size_t kMaxEntryBytes = 1 + 10 + 5 + 5 + 10;

  std::int64_t next_index = 0;  // one past the entry before
  std::uint32_t packets = 0;    // of the entry before, per window
  std::uint32_t unit = 0;       // the usual size

  void follow(const Window& window) noexcept {
    next_index = window.index + window.length;
    packets = window.packets / window.length;
    if (window.packets != 0 && window.bytes / window.packets > unit) {
      unit = static_cast<std::uint32_t>(std::min<std::uint64_t>(window.bytes / window.packets, 0xffffffffU));
    }
  }

  // The entry of one byte, or kLong when there is none for this window.
  [[nodiscard]] std::uint8_t short_entry(std::int64_t index, std::uint64_t bytes,
                                         std::uint32_t window_packets) const noexcept {
    const auto gap = static_cast<std::uint64_t>(index) - static_cast<std::uint64_t>(next_index);
    const std::uint32_t step = window_packets - packets + kStepBias;
    if (bytes != std::uint64_t{window_packets} * unit) return kLong;
    if (gap <= kMaxShortGap && window_packets - 1 < kShortPackets) {
      return static_cast<std::uint8_t>(gap << 1U | (window_packets - 1));
    }
    return gap == 0 && step < 2 * kStepBias ? static_cast<std::uint8_t>(kNextWindow | step) : kLong;
  }

  // Writes the entry of any window at `out`, which has room for kMaxEntryBytes; returns its bytes.
  std::size_t encode(const Window& window, std::uint8_t* out) noexcept;
};

// Appends the windows of one flow's entries to `out`, in their order. Throws std::invalid_argument when the
// bytes are no entries, std::length_error when they are more than `max_rows` entries.
void decode_entries(std::span<const std::uint8_t> entries, std::size_t max_rows, std::vector<Window>& out);

// Sorts the windows from `from` on and sums those of equal index; pieces that overlap become one.
void sort_windows(std::vector<Window>& windows, std::size_t from);

// Reads a series section that may be damaged or hostile; rows ascend by flow and time. Throws like
// decode_entries(). A row may stand for any number of windows: to spread it is the caller's choice.
[[nodiscard]] std::vector<PieceRecord> decode_series(std::span<const std::uint8_t> section, std::uint64_t window_ns,
                                                     std::size_t max_rows);

}  // namespace pulse
