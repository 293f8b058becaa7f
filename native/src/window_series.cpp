// SPDX-License-Identifier: Apache-2.0
#include "pulse/window_series.hpp"

#include <limits>
#include <stdexcept>
#include <string>

#include "pulse/varint.hpp"

namespace pulse {

namespace {

// Flags of a long entry.
constexpr std::uint8_t kHasLength = 1;
constexpr std::uint8_t kHasBytes = 2;
constexpr std::uint8_t kAdjacent = 4;
constexpr std::uint8_t kUnknownFlags = 0x38;

constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();

[[noreturn]] void fail(const char* what) {
  throw std::invalid_argument(std::string("series section is damaged: ") + what);
}

[[noreturn]] void fail_as_too_long(std::size_t max_rows) {
  throw std::length_error("series section holds more than the " + std::to_string(max_rows) + " entries allowed");
}

std::uint64_t number(VarintReader& in) {
  const auto value = in.next();
  if (!value) fail("a number is cut off or exceeds 64 bits");
  return *value;
}

std::uint32_t number32(VarintReader& in) {
  const std::uint64_t value = number(in);
  if (value > kMax32) fail("a number exceeds 32 bits");
  return static_cast<std::uint32_t>(value);
}

void add(std::int64_t& index, std::int64_t step) {
  if (__builtin_add_overflow(index, step, &index)) fail("a window number exceeds 63 bits");
}

Window read_entry(VarintReader& in, const WindowContext& context) {
  const std::uint8_t entry = in.byte();
  Window window{context.next_index, 0, 0};
  bool has_bytes = false;
  if (entry < WindowContext::kNextWindow) {
    add(window.index, entry >> 1);
    window.packets = (entry & 1U) + 1;
  } else if (entry < WindowContext::kLong) {
    const std::uint32_t packets = context.packets + (entry & 0x3fU) - WindowContext::kStepBias;
    window.packets = packets;
  } else {
    if ((entry & kUnknownFlags) != 0) fail("an entry has flags that are not known");
    has_bytes = (entry & kHasBytes) != 0;
    if ((entry & kAdjacent) == 0) add(window.index, unzigzag(number(in)));
    if ((entry & kHasLength) != 0) {
      window.length = number32(in);
      if (window.length == kMax32) fail("a number exceeds 32 bits");
      window.length += 1;
    }
    window.packets = number32(in);
  }
  window.bytes = std::uint64_t{window.packets} * context.unit;
  if (has_bytes) window.bytes += static_cast<std::uint64_t>(unzigzag(number(in)));
  std::int64_t end = window.index;
  add(end, window.length);
  return window;
}

}  // namespace

std::size_t WindowContext::encode(const Window& window, std::uint8_t* out) noexcept {
  const std::uint8_t entry = window.length == 1 ? short_entry(window.index, window.bytes, window.packets) : kLong;
  if (entry != kLong) {
    out[0] = entry;
    follow(window);
    return 1;
  }
  const std::int64_t gap = window.index - next_index;
  const std::uint64_t usual = std::uint64_t{window.packets} * unit;
  std::uint8_t flags = kLong;
  if (window.length != 1) flags |= kHasLength;
  if (window.bytes != usual) flags |= kHasBytes;
  if (gap == 0) flags |= kAdjacent;
  std::size_t size = 0;
  out[size++] = flags;
  if (gap != 0) size += put_varint(out + size, zigzag(gap));
  if (window.length != 1) size += put_varint(out + size, window.length - 1);
  size += put_varint(out + size, window.packets);
  if (window.bytes != usual) size += put_varint(out + size, zigzag(static_cast<std::int64_t>(window.bytes - usual)));
  follow(window);
  return size;
}

void decode_entries(std::span<const std::uint8_t> entries, std::size_t max_rows, std::vector<Window>& out) {
  VarintReader in(entries);
  WindowContext context;
  std::size_t left = max_rows;
  while (in.remaining() != 0) {
    const Window window = read_entry(in, context);
    if (left-- == 0) fail_as_too_long(max_rows);
    context.follow(window);
    out.push_back(window);
  }
}

std::vector<PieceRecord> decode_series(std::span<const std::uint8_t> section, std::uint64_t window_ns,
                                       std::size_t max_rows) {
  if (window_ns == 0 || window_ns > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw std::invalid_argument("window_ns is " + std::to_string(window_ns) + ", must be within 1 and 2^63 - 1");
  }
  std::vector<PieceRecord> rows;
  std::vector<Window> windows;
  VarintReader in(section);
  std::size_t left = max_rows;
  std::uint64_t flow = 0;
  const std::uint64_t flows = number(in);
  for (std::uint64_t i = 0; i < flows; ++i) {
    const std::uint32_t step = number32(in);
    if (i > 0 && step == 0) fail("a flow stands twice in it");
    flow += step;
    if (flow > kMax32) fail("a flow number exceeds 32 bits");
    const std::uint64_t size = number(in);
    if (size > in.remaining()) fail("entries are cut off");
    windows.clear();
    decode_entries(in.take(static_cast<std::size_t>(size)), left, windows);
    left -= windows.size();
    sort_windows(windows, 0);
    for (const Window& window : windows) {
      std::int64_t start_ns = 0;
      if (__builtin_mul_overflow(window.index, static_cast<std::int64_t>(window_ns), &start_ns)) {
        fail("a window starts beyond 64-bit time");
      }
      rows.push_back({start_ns, window.bytes, static_cast<std::uint32_t>(flow), window.packets, window.length, 0});
    }
  }
  if (in.remaining() != 0) fail("bytes follow the last flow");
  return rows;
}

}  // namespace pulse
