// SPDX-License-Identifier: Apache-2.0
//
// A clock that is wrong: what it shows at a true time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/packet_run.hpp"
#include "sim/tap.hpp"

namespace pulse::sim {

// Readings compare in the order in which a clock gives them, also across a step back.
struct Reading {
  std::int64_t steps = 0;  // steps of the clock up to then
  std::int64_t shown_ns = 0;

  auto operator<=>(const Reading&) const = default;
};

class Clock {
 public:
  // Throws std::invalid_argument for points that are no clock: none, out of order, or shown time running backwards.
  explicit Clock(std::span<const ClockPoint> points);

  // `cursor` is the caller's, 0 at first: lookups whose times grow find their piece at once.
  [[nodiscard]] Reading read(Picoseconds true_ps, std::size_t& cursor) const noexcept {
    while (cursor + 1 < pieces_.size() && pieces_[cursor + 1].begin_ps <= true_ps) {
      ++cursor;
    }
    while (cursor > 0 && pieces_[cursor].begin_ps > true_ps) {
      --cursor;
    }
    const Piece& piece = pieces_[cursor];
    const Picoseconds elapsed_ps = true_ps - piece.anchor_ps;
    // Only the drift passes through a double: all of the time would lose digits.
    const auto drift_ps = static_cast<Picoseconds>(static_cast<double>(elapsed_ps) * piece.drift);
    return {piece.steps, piece.anchor_shown_ns + floor_ns(elapsed_ps + drift_ps)};
  }

 private:
  struct Piece {
    Picoseconds begin_ps;
    Picoseconds anchor_ps;
    std::int64_t anchor_shown_ns;
    std::int64_t steps;
    double drift;  // rate - 1
  };

  static constexpr std::int64_t floor_ns(Picoseconds ps) noexcept { return ps / 1000 - (ps % 1000 < 0 ? 1 : 0); }

  std::vector<Piece> pieces_;
};

}  // namespace pulse::sim
