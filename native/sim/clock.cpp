// SPDX-License-Identifier: Apache-2.0
#include "sim/clock.hpp"

#include <limits>
#include <stdexcept>
#include <string>

namespace pulse::sim {
namespace {

constexpr Picoseconds kPsPerNs = 1000;
constexpr std::int64_t kMaxTrueNs = std::numeric_limits<std::int64_t>::max() / kPsPerNs / 2;
constexpr std::int64_t kMaxShownNs = std::numeric_limits<std::int64_t>::max() / 2;

[[noreturn]] void reject(std::size_t index, const char* why) {
  throw std::invalid_argument("clock: point " + std::to_string(index) + " " + why);
}

bool within(std::int64_t value, std::int64_t limit) { return value >= -limit && value <= limit; }

void check(std::span<const ClockPoint> points) {
  if (points.empty()) {
    throw std::invalid_argument("clock: give at least one point");
  }
  for (std::size_t index = 0; index < points.size(); ++index) {
    const ClockPoint& point = points[index];
    if (!within(point.true_ns, kMaxTrueNs) || !within(point.shown_ns, kMaxShownNs)) {
      reject(index, "is out of range");
    }
    if (index == 0) {
      continue;
    }
    const ClockPoint& before = points[index - 1];
    if (point.true_ns < before.true_ns) {
      reject(index, "has an earlier true_ns than the one before");
    }
    if (point.true_ns == before.true_ns) {
      if (index > 1 && points[index - 2].true_ns == point.true_ns) {
        reject(index, "is the third of one true_ns");
      }
    } else if (point.shown_ns < before.shown_ns) {
      reject(index, "shows an earlier time than the one before; a step takes two points of one true_ns");
    } else if ((point.shown_ns - before.shown_ns) / 2 > point.true_ns - before.true_ns) {
      reject(index, "is reached at more than twice the rate of true time");
    }
  }
}

double drift_between(const ClockPoint& a, const ClockPoint& b) {
  const auto true_ns = static_cast<double>(b.true_ns - a.true_ns);
  return (static_cast<double>(b.shown_ns - a.shown_ns) - true_ns) / true_ns;
}

}  // namespace

Clock::Clock(std::span<const ClockPoint> points) {
  check(points);
  // Before the first point: the rate of the first piece, filled in below.
  pieces_.push_back(
      {std::numeric_limits<Picoseconds>::min(), points.front().true_ns * kPsPerNs, points.front().shown_ns, 0, 0});
  std::int64_t steps = 0;
  bool first = true;
  for (std::size_t index = 1; index < points.size(); ++index) {
    const ClockPoint& from = points[index - 1];
    if (points[index].true_ns == from.true_ns) {
      ++steps;
      continue;
    }
    const double drift = drift_between(from, points[index]);
    const Picoseconds from_ps = from.true_ns * kPsPerNs;
    pieces_.push_back({from_ps, from_ps, from.shown_ns, steps, drift});
    if (first) {
      pieces_.front().drift = drift;
      first = false;
    }
  }
  const Picoseconds last_ps = points.back().true_ns * kPsPerNs;
  pieces_.push_back({last_ps, last_ps, points.back().shown_ns, steps, pieces_.back().drift});
}

}  // namespace pulse::sim
