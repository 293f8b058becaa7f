// SPDX-License-Identifier: Apache-2.0
#include "sim/clock.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "sim/random.hpp"

namespace {

using pulse::sim::Clock;
using pulse::sim::ClockPoint;
using pulse::sim::Random;

constexpr std::int64_t kEpochNs = 1'700'000'000'000'000'000;

std::int64_t shown(const std::vector<ClockPoint>& points, std::int64_t true_ps) {
  std::size_t cursor = 0;
  return Clock(points).read(true_ps, cursor).shown_ns;
}

TEST("a clock of one point runs at the rate of true time, to the nanosecond, before and after") {
  const std::vector<ClockPoint> points = {{10, kEpochNs}};
  CHECK_EQ(shown(points, 10'000), kEpochNs);
  CHECK_EQ(shown(points, 10'999), kEpochNs);
  CHECK_EQ(shown(points, 11'000), kEpochNs + 1);
  CHECK_EQ(shown(points, 9'999), kEpochNs - 1);
  CHECK_EQ(shown(points, 3'600'000'000'000'000 + 10'000), kEpochNs + 3'600'000'000'000);
}

TEST("a clock runs straight between its points and on at the nearest rate beyond them") {
  // 1000 ppm fast, then 500 ppm slow.
  const std::vector<ClockPoint> points = {
      {0, kEpochNs}, {1'000'000, kEpochNs + 1'001'000}, {2'000'000, kEpochNs + 2'000'500}};
  CHECK_EQ(shown(points, 500'000'000), kEpochNs + 500'500);
  CHECK_EQ(shown(points, 1'000'000'000), kEpochNs + 1'001'000);
  CHECK_EQ(shown(points, 1'500'000'000), kEpochNs + 1'500'750);
  CHECK_EQ(shown(points, 4'000'000'000), kEpochNs + 3'999'500);
  CHECK_EQ(shown(points, -1'000'000'000), kEpochNs - 1'001'000);
}

TEST("a step counts and holds from its time on, forwards and back") {
  const std::vector<ClockPoint> points = {{0, 0}, {1000, 1000}, {1000, 500}, {2000, 1500}, {2000, 9000}};
  const Clock clock(points);
  std::size_t cursor = 0;
  CHECK((clock.read(999'000, cursor) == pulse::sim::Reading{0, 999}));
  CHECK((clock.read(1'000'000, cursor) == pulse::sim::Reading{1, 500}));
  CHECK((clock.read(1'999'000, cursor) == pulse::sim::Reading{1, 1499}));
  CHECK((clock.read(2'000'000, cursor) == pulse::sim::Reading{2, 9000}));
  CHECK((clock.read(0, cursor) == pulse::sim::Reading{0, 0}));
  CHECK(pulse::sim::Reading(0, 999) < pulse::sim::Reading(1, 500));
}

TEST("readings never run backwards without a step, whatever the points") {
  Random random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<ClockPoint> points = {{0, kEpochNs}};
    for (int piece = 0; piece < 8; ++piece) {
      const std::int64_t true_ns = 1 + random.below(2000);
      points.push_back({points.back().true_ns + true_ns,
                        points.back().shown_ns + random.below(static_cast<std::uint32_t>(2 * true_ns))});
    }
    const Clock clock(points);
    std::size_t cursor = 0;
    pulse::sim::Reading last = clock.read(-5000, cursor);
    for (std::int64_t ps = -5000; ps < 20'000'000; ps += random.below(5000)) {
      const auto reading = clock.read(ps, cursor);
      CHECK(last <= reading);
      last = reading;
    }
  }
}

TEST("points that are no clock are refused") {
  const auto refused = [](const std::vector<ClockPoint>& points) {
    try {
      const Clock clock(points);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()).starts_with("clock:");
    }
    return false;
  };
  CHECK(refused({}));
  CHECK(refused({{5, 5}, {4, 6}}));
  CHECK(refused({{5, 5}, {6, 4}}));
  CHECK(refused({{5, 5}, {5, 6}, {5, 7}}));
  CHECK(refused({{5, 5}, {6, 100}}));
  CHECK(refused({{INT64_MAX, 5}}));
}

TEST("random numbers are the same everywhere and have the moments of their distributions") {
  Random first(42);
  // xoshiro256** seeded by SplitMix64 from 42.
  CHECK_EQ(first.next(), 1546998764402558742U);
  Random random(7);
  double uniform = 0;
  double exponential = 0;
  double normal = 0;
  double square = 0;
  std::uint64_t below = 0;
  constexpr int kDraws = 200'000;
  for (int draw = 0; draw < kDraws; ++draw) {
    uniform += random.uniform();
    exponential += random.exponential(3);
    const double value = random.normal();
    normal += value;
    square += value * value;
    below += random.below(11);
  }
  const auto near = [](double sum, double mean) { return sum / kDraws > mean - 0.03 && sum / kDraws < mean + 0.03; };
  CHECK(near(uniform, 0.5));
  CHECK(near(exponential, 3));
  CHECK(near(normal, 0));
  CHECK(near(square, 1));
  CHECK(near(static_cast<double>(below), 5));
}

}  // namespace
