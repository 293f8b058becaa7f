// SPDX-License-Identifier: Apache-2.0
//
// Windows that the bytes describe, through a store and back. Within the budget every window comes back as it went
// in, from the store as from a section that a frame would carry; over it the sums do, of all that was not lost.
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "fuzz_input.hpp"
#include "pulse/varint.hpp"
#include "pulse/window_series.hpp"
#include "pulse/window_store.hpp"

namespace {

using pulse::fuzz::require;

constexpr std::size_t kSlots = 4;

struct Sums {
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
  bool operator==(const Sums&) const = default;
};

using Slots = std::array<std::map<std::int64_t, Sums>, kSlots>;

// A step that comes from one byte, or now and then from eight: windows far apart and far back.
std::int64_t next_index(pulse::fuzz::Input& input, std::int64_t index) {
  const std::uint8_t step = input.u8();
  if (step < 0xf0) return index + (step & 0x0f) - 2;
  constexpr std::int64_t kFar = std::int64_t{1} << 50;
  return static_cast<std::int64_t>(input.number(step < 0xf8 ? 3 : 7)) % kFar - (step % 2 == 1 ? kFar / 2 : 0);
}

void fill(pulse::fuzz::Input& input, pulse::WindowStore& store, pulse::WindowStore& twin, Slots& sent) {
  std::int64_t index = 0;
  while (!input.empty()) {
    const std::uint8_t head = input.u8();
    const std::size_t slot = head % kSlots;
    const auto packets = static_cast<std::uint32_t>(head < 0xf0 ? head / 16 + 1 : input.number(3) + 1);
    const std::uint64_t bytes = (head & 4) != 0 ? input.number(4) : std::uint64_t{packets} * 4096;
    index = next_index(input, index);
    store.append(slot, index, bytes, packets);
    twin.append(slot, index, bytes, packets);
    Sums& sums = sent[slot][index];
    sums.bytes += bytes;
    sums.packets += packets;
  }
}

std::vector<std::uint8_t> section_of(pulse::WindowStore& store) {
  std::vector<std::uint8_t> section{static_cast<std::uint8_t>(kSlots)};
  std::array<std::uint8_t, pulse::kMaxVarintBytes> size_bytes;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    std::vector<std::uint8_t> entries;
    store.take_entries(slot, entries);
    section.push_back(slot == 0 ? 0 : 1);
    const std::size_t size = pulse::put_varint(size_bytes.data(), entries.size());
    section.insert(section.end(), size_bytes.begin(), size_bytes.begin() + static_cast<std::ptrdiff_t>(size));
    section.insert(section.end(), entries.begin(), entries.end());
  }
  return section;
}

void require_exact(const std::vector<pulse::Window>& windows, const std::map<std::int64_t, Sums>& sent) {
  require(windows.size() == sent.size());
  auto expected = sent.begin();
  for (const pulse::Window& window : windows) {
    require(window.length == 1 && window.index == expected->first);
    require(Sums{window.bytes, window.packets} == expected->second);
    ++expected;
  }
}

void require_sums(const std::vector<pulse::Window>& windows, const std::map<std::int64_t, Sums>& sent) {
  Sums before;
  for (const auto& [index, sums] : sent) before = {before.bytes + sums.bytes, before.packets + sums.packets};
  Sums after;
  for (const pulse::Window& window : windows) after = {after.bytes + window.bytes, after.packets + window.packets};
  require(before == after);
}

// The section, read as a frame's, holds what the store hands out.
void require_same(const std::vector<pulse::PieceRecord>& rows, const std::vector<std::vector<pulse::Window>>& slots) {
  std::size_t at = 0;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    for (const pulse::Window& window : slots[slot]) {
      require(at < rows.size() && rows[at].flow == slot && rows[at].start_ns == window.index);
      require(rows[at].bytes == window.bytes && rows[at].packets == window.packets);
      require(rows[at].windows == window.length);
      ++at;
    }
  }
  require(at == rows.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pulse::fuzz::Input input(data, size);
  const std::size_t budget_bytes = 64U * (1U + input.u8());
  pulse::WindowStore store(kSlots, budget_bytes);
  pulse::WindowStore twin(kSlots, budget_bytes);
  Slots sent;
  fill(input, store, twin, sent);
  const bool exact = !store.degraded() && store.lost() == 0;
  const bool complete = store.lost() == 0;
  std::vector<std::vector<pulse::Window>> slots(kSlots);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    store.take(slot, slots[slot]);
    if (exact) require_exact(slots[slot], sent[slot]);
    if (complete) require_sums(slots[slot], sent[slot]);
  }
  require_same(pulse::decode_series(section_of(twin), 1, 1U << 20), slots);
  return 0;
}
