// SPDX-License-Identifier: Apache-2.0
#include "pulse/psn.hpp"

#include "check.hpp"

namespace {

using pulse::Sight;

// A PSN space that is asked about one PSN after the other.
struct Space {
  pulse::PsnPosition next = pulse::kNoPosition;
  pulse::PsnHistory history;

  Sight see(std::uint32_t psn, bool starts_message = false, std::int64_t idle_ns = 0) {
    return pulse::classify_psn(next, history, psn & pulse::kPsnMask, {idle_ns, starts_message, false}).sight;
  }
};

TEST("PSN distance is serial over the wrap") {
  CHECK_EQ(pulse::psn_distance(0, 0xffffff), 1);
  CHECK_EQ(pulse::psn_distance(0xffffff, 0), -1);
  CHECK_EQ(pulse::psn_distance(0x800000, 0), -0x800000);
  CHECK_EQ(pulse::psn_distance(5, 0xfffffe), 7);
}

TEST("a wrap is neither a gap nor a new life") {
  Space space;
  for (std::uint32_t psn = 0xfffffd; psn < 0x1000004; ++psn) CHECK_EQ(space.see(psn, true), Sight::next);
}

TEST("a lost packet leaves a hole that its repair fills, and what follows is repeated") {
  Space space;
  CHECK_EQ(space.see(0xfffffe), Sight::next);
  CHECK_EQ(space.see(1), Sight::ahead);  // 0xffffff and 0 are missing
  CHECK_EQ(space.see(0xffffff), Sight::late);
  CHECK_EQ(space.see(0), Sight::late);
  CHECK_EQ(space.see(0), Sight::repeat);
  CHECK_EQ(space.see(1), Sight::repeat);
  CHECK_EQ(space.see(2), Sight::next);
}

TEST("going back N packets is no new life, even to its very start") {
  Space space;
  for (std::uint32_t psn = 0; psn < 4000; ++psn) space.see(psn);
  CHECK_EQ(space.see(0, true, 5'000'000'000), Sight::repeat);
  CHECK_EQ(space.see(4000), Sight::next);
}

TEST("the start of a life far back is a new life") {
  Space space;
  for (std::uint32_t psn = 7; psn < 6000; ++psn) space.see(psn);
  CHECK_EQ(space.see(7), Sight::repeat);  // a MIDDLE begins nothing
  CHECK_EQ(space.see(7, true), Sight::restart);
  CHECK_EQ(space.see(8), Sight::next);
}

TEST("a far jump is a new life after a long silence only") {
  Space space;
  space.see(100);
  CHECK_EQ(space.see(500'000, true), Sight::ahead);
  CHECK_EQ(space.see(900'000, true, 2'000'000'000), Sight::restart);
}

TEST("the jump behind a READ request is no gap, a longer one is") {
  Space space;
  space.see(10);
  space.history.note_read(pulse::PsnPosition{10} + pulse::kPsnMask + 1, 4096);
  CHECK_EQ(space.see(14), Sight::next);  // four packets of 1024
  space.history.note_read(space.next - 1, 4096);
  CHECK_EQ(space.see(31), Sight::ahead);  // more than 16 packets of 256
}

TEST("holes are bounded: the oldest is forgotten") {
  pulse::PsnHoles holes;
  for (int i = 0; i < 100; ++i) holes.add(10 * i, 10 * i + 1);
  CHECK(!holes.fill(0));
  CHECK(holes.fill(990));
  CHECK(holes.overlap(985, 1000) == false);
  CHECK(holes.overlap(980, 981));
}

}  // namespace
