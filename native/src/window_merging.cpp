// SPDX-License-Identifier: Apache-2.0
#include "window_merging.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pulse {

namespace {

// A window that was empty and now shows traffic misleads more than one whose rate is a little off: silences
// are what operators are told apart by.
constexpr double kEmptyCost = 4;
// Passes with a rising tolerance merge the most alike first without the price of a priority queue.
constexpr int kPasses = 5;
constexpr double kPassStep = 4;

double mean(const Window& window) { return static_cast<double>(window.bytes) / window.length; }

double mean_square(const std::vector<Window>& windows) {
  double sum = 0;
  double length = 0;
  for (const Window& window : windows) {
    sum += mean(window) * static_cast<double>(window.bytes);
    length += window.length;
  }
  return sum > 0 ? sum / length : 1;
}

// What joining two neighbours adds to the sum of squared errors, and for the empty windows between them.
double cost(const Window& a, const Window& b, double square) {
  const auto gap = static_cast<double>(b.index - a.index - a.length);
  const double left = a.length;
  const double right = b.length;
  const double joined = static_cast<double>(a.bytes + b.bytes) / (left + gap + right);
  const auto error = [&](double length, double value) { return length * (value - joined) * (value - joined); };
  return (error(left, mean(a)) + error(right, mean(b)) + error(gap, 0)) / square +
         kEmptyCost * gap * joined / std::sqrt(square);
}

bool can_join(const Window& a, const Window& b) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  const auto length = static_cast<std::uint64_t>(b.index + b.length - a.index);
  return length <= kMax && std::uint64_t{a.packets} + b.packets <= kMax;
}

std::uint64_t saturated_sum(std::uint64_t a, std::uint64_t b, std::uint64_t most) {
  return a > most || b > most - a ? most : a + b;
}

// Makes one of two that overlap, as far as 32 bits hold it; else the first ends where the second begins.
bool join_overlapping(Window& a, const Window& b) {
  constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
  const std::int64_t end = std::max(a.index + a.length, b.index + b.length);
  const auto length = static_cast<std::uint64_t>(end - a.index);
  const std::uint64_t packets = std::uint64_t{a.packets} + b.packets;
  if (a.index != b.index && (length > kMax32 || packets > kMax32)) {
    a.length = static_cast<std::uint32_t>(b.index - a.index);
    return false;
  }
  a.length = static_cast<std::uint32_t>(length);
  a.bytes = saturated_sum(a.bytes, b.bytes, std::numeric_limits<std::uint64_t>::max());
  a.packets = static_cast<std::uint32_t>(std::min(packets, kMax32));
  return true;
}

void join(Window& a, const Window& b) {
  a.length = static_cast<std::uint32_t>(b.index + b.length - a.index);
  a.bytes += b.bytes;
  a.packets += b.packets;
}

}  // namespace

void sort_windows(std::vector<Window>& windows, std::size_t from) {
  const auto begin = windows.begin() + static_cast<std::ptrdiff_t>(from);
  const auto by_index = [](const Window& a, const Window& b) { return a.index < b.index; };
  if (!std::is_sorted(begin, windows.end(), by_index)) std::sort(begin, windows.end(), by_index);
  auto last = begin;
  for (auto window = begin; window != windows.end(); ++window) {
    if (window == begin) continue;
    if (window->index < last->index + last->length && join_overlapping(*last, *window)) continue;
    *++last = *window;
  }
  if (begin != windows.end()) windows.erase(last + 1, windows.end());
}

void merge_windows(std::vector<Window>& windows, double tolerance) {
  if (windows.empty()) return;
  const double square = mean_square(windows);
  double limit = std::isinf(tolerance) ? tolerance : tolerance / std::pow(kPassStep, kPasses - 1);
  for (int pass = 0; pass < kPasses; ++pass, limit *= kPassStep) {
    std::size_t kept = 0;
    for (std::size_t i = 1; i < windows.size(); ++i) {
      Window& last = windows[kept];
      if (can_join(last, windows[i]) && cost(last, windows[i], square) <= limit) {
        join(last, windows[i]);
      } else {
        windows[++kept] = windows[i];
      }
    }
    windows.resize(kept + 1);
  }
}

}  // namespace pulse
