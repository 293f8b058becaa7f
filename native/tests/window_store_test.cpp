// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "pulse/varint.hpp"
#include "pulse/window_blob.hpp"
#include "pulse/window_clock.hpp"
#include "pulse/window_store.hpp"

namespace {

using pulse::Window;

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }

TEST("the window clock divides exactly, for any width and time") {
  for (const std::int64_t width : {100, 1000, 8000, 8192, 64'000, 67'108'864}) {
    const pulse::WindowClock clock(static_cast<std::uint64_t>(width));
    for (const std::int64_t near : {std::int64_t{0}, std::int64_t{1'795'973'304'149'877'308},
                                    std::numeric_limits<std::int64_t>::max() - 70'000'000, std::int64_t{-5'000'000}}) {
      const std::int64_t edge = floor_div(near, width) * width;
      for (const std::int64_t ns : {near, edge, edge - 1, edge + 1, edge + width - 1, edge + width}) {
        CHECK_EQ(clock.index(ns), floor_div(ns, width));
      }
    }
  }
}

TEST("windows come back sorted and merged, whatever the order they came in") {
  pulse::WindowStore store(2, 1 << 20);
  for (const std::int64_t index : {5, 6, 5, 900, -3, 6}) store.append(1, index, 100, 1);
  std::vector<Window> windows;
  store.take(1, windows);
  CHECK_EQ(windows.size(), 4U);
  CHECK_EQ(windows[0].index, -3);
  CHECK_EQ(windows[1].bytes, 200U);
  CHECK_EQ(windows[2].packets, 2U);
  windows.clear();
  store.take(1, windows);
  CHECK(windows.empty());
}

TEST("over budget windows become pieces and totals stay exact") {
  constexpr std::size_t kSlots = 8;
  pulse::WindowStore store(kSlots, 64 * 64);  // 64 chunks
  std::uint64_t sent = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto bytes = static_cast<std::uint64_t>(i * 7 % 5000);
    store.append(static_cast<std::size_t>(i) % kSlots, i / 8 * 3, bytes, 1);
    sent += bytes;
    CHECK(store.memory_bytes() < 64 * 64 + kSlots * 64 + (1U << 18));
  }
  store.retire(3, 77);
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
  std::uint64_t averaged = 0;
  std::vector<Window> windows;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    windows.clear();
    if (slot == 3) {
      std::vector<std::uint8_t> entries;
      CHECK(store.has_retired());
      CHECK_EQ(store.take_retired(entries), 77U);
      pulse::decode_entries(entries, 1U << 20, windows);
      pulse::sort_windows(windows, 0);
    } else {
      store.take(slot, windows);
    }
    std::int64_t end = 0;
    for (const Window& window : windows) {
      bytes += window.bytes;
      packets += window.packets;
      averaged += window.length > 1 ? window.length : 0;
      CHECK(window.index >= end);
      end = window.index + window.length;
    }
    CHECK(end <= 2500 * 3);
  }
  CHECK_EQ(bytes, sent);
  CHECK_EQ(packets, 20'000U);
  CHECK(averaged > 0);
  CHECK_EQ(store.lost(), 0U);
}

std::vector<std::uint8_t> section_of(std::uint32_t flow, const std::vector<Window>& windows) {
  pulse::WindowContext context;
  std::vector<std::uint8_t> entries;
  for (const Window& window : windows) {
    std::uint8_t entry[pulse::WindowContext::kMaxEntryBytes];
    const std::size_t size = context.encode(window, entry);
    entries.insert(entries.end(), entry, entry + size);
  }
  std::vector<std::uint8_t> section = {1, static_cast<std::uint8_t>(flow), static_cast<std::uint8_t>(entries.size())};
  section.insert(section.end(), entries.begin(), entries.end());
  return section;
}

TEST("a series reads back, and damage is refused or means something else") {
  const std::vector<Window> windows = {{1000, 8192, 2},       {1001, 4096, 1},     {1004, 0, 3},
                                       {1005, 1ULL << 40, 4}, {1006, 100, 1, 500}, {1600, 4096 * 97, 97}};
  const auto section = section_of(9, windows);
  const auto rows = pulse::decode_series(section, 8'000, 600);
  CHECK_EQ(rows.size(), windows.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    CHECK_EQ(rows[i].start_ns, windows[i].index * 8'000);
    CHECK_EQ(rows[i].bytes, windows[i].bytes);
    CHECK_EQ(rows[i].packets, windows[i].packets);
    CHECK_EQ(rows[i].windows, windows[i].length);
    CHECK_EQ(rows[i].flow, 9U);
  }
  int refused = 0;
  for (std::size_t size = 0; size < section.size(); ++size) {
    try {
      static_cast<void>(pulse::decode_series(std::span(section).first(size), 8'000, 600));
    } catch (const std::invalid_argument&) {
      ++refused;
    }
  }
  CHECK_EQ(refused, static_cast<int>(section.size()));
  bool too_long = false;
  try {
    static_cast<void>(pulse::decode_series(section, 8'000, 5));
  } catch (const std::length_error&) {
    too_long = true;
  }
  CHECK(too_long);
}

TEST("a section that names a flow twice is refused") {
  const std::vector<std::uint8_t> series = {2, 7, 1, 0x00, 0, 1, 0x00};
  const std::vector<std::uint8_t> blob = {2, 7, 1, 0, 0, 0};
  const auto refuses = [](auto read) {
    try {
      read();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  CHECK(refuses([&] { static_cast<void>(pulse::decode_series(series, 8'000, 100)); }));
  CHECK(refuses([&] { static_cast<void>(pulse::decode_windows(blob, 0, 8'000, 100)); }));
}

TEST("pieces that overlap become one as far as 32 bits hold it, and never none") {
  constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
  std::vector<Window> windows = {{0, 10, 1, kMax}, {kMax / 2, 20, 2, kMax}, {kMax / 2, 30, kMax, 1}};
  pulse::sort_windows(windows, 0);
  CHECK_EQ(windows.size(), 2U);
  CHECK_EQ(windows[0].length, kMax / 2);  // ends where the next begins
  CHECK_EQ(windows[0].bytes, 10U);
  CHECK_EQ(windows[1].length, kMax);
  CHECK_EQ(windows[1].bytes, 50U);
  CHECK_EQ(windows[1].packets, kMax);  // saturated
}

}  // namespace
