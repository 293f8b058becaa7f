// SPDX-License-Identifier: Apache-2.0
//
// Log-linear histograms of 64 cells: two cells per power of two, so a value is
// known within a factor of 1.5. Counts of equal cells add, so histograms of
// intervals, flows or meters merge by addition.
//
//   cell        values
//   0, 1        0, 1
//   2k          [2^k, 1.5 * 2^k)         k = 1..31
//   2k + 1      [1.5 * 2^k, 2^(k+1))
//   63          [3 * 2^30, infinity)
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace pulse {

inline constexpr unsigned kHistogramCells = 64;

// The exponent of a double and the first bit behind it are the cell: of all ways to get there the one with the
// fewest instructions. Rounding, above 2^53, changes nothing: those values are in the last cell.
[[nodiscard]] constexpr unsigned histogram_cell(std::uint64_t value) noexcept {
  constexpr std::uint64_t kZeroExponent = 2046;  // twice the exponent of 1
  if (value < 2) return static_cast<unsigned>(value);
  const auto limited = static_cast<std::int64_t>(value >> 62 == 0 ? value : std::uint64_t{1} << 62);
  const std::uint64_t cell = (std::bit_cast<std::uint64_t>(static_cast<double>(limited)) >> 51) - kZeroExponent;
  return cell < kHistogramCells ? static_cast<unsigned>(cell) : kHistogramCells - 1;
}

// Smallest value of a cell; `cell` is below kHistogramCells.
[[nodiscard]] constexpr std::uint64_t histogram_lower_bound(unsigned cell) noexcept {
  if (cell < 2) return cell;
  const unsigned octave = cell / 2;
  return (std::uint64_t{2} + (cell & 1)) << (octave - 1);
}

struct Histogram {
  std::array<std::uint32_t, kHistogramCells> counts{};

  void add(std::uint64_t value) noexcept { ++counts[histogram_cell(value)]; }
};

}  // namespace pulse
