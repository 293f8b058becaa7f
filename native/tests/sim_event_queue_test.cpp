// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "sim/event_queue.hpp"
#include "sim/random.hpp"

namespace {

using namespace pulse::sim;

struct Asked {
  Picoseconds time_ps = 0;
  std::uint32_t number = 0;  // in the order of asking
};

// What a queue gives, and what it was asked for, when events cause others as far ahead as `delay` draws.
template <typename Delay>
void check_order(std::uint64_t seed, Delay delay) {
  EventQueue queue;
  Random random(seed);
  std::vector<Asked> asked;
  std::vector<std::uint32_t> given;
  const auto ask = [&] {
    const auto number = static_cast<std::uint32_t>(asked.size());
    const Picoseconds time = queue.now() + delay(random);
    asked.push_back({std::max(time, queue.now()), number});
    queue.at(time, EventKind::inject, number);
  };
  for (int count = 0; count < 300; ++count) ask();
  while (!queue.empty()) {
    const Picoseconds expected = queue.next_time();
    const Event event = queue.pop();
    CHECK(event.time_ps == expected && queue.now() == expected);
    given.push_back(event.subject);
    for (std::uint32_t caused = random.below(3); caused > 0 && asked.size() < 20'000; --caused) ask();
  }
  std::ranges::stable_sort(asked, {}, &Asked::time_ps);
  bool same = asked.size() == given.size();
  for (std::size_t place = 0; same && place < given.size(); ++place) same = asked[place].number == given[place];
  CHECK(same);
}

}  // namespace

TEST("events come in the order of their times, however far ahead they were asked for") {
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    // Many at one time, some in the past, slots next to each other, beyond the wheel, and all of these.
    check_order(seed, [](Random& random) { return static_cast<Picoseconds>(random.below(3)) * 65'536 - 65'536; });
    check_order(seed, [](Random& random) { return static_cast<Picoseconds>(random.below(1'000'000)); });
    check_order(seed, [](Random& random) { return static_cast<Picoseconds>(random.below(8)) * 67'108'864; });
    check_order(seed, [](Random& random) {
      return random.chance(0.5) ? static_cast<Picoseconds>(random.exponential(3e5))
                                : static_cast<Picoseconds>(random.exponential(3e9));
    });
  }
}
