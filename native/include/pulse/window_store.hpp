// SPDX-License-Identifier: Apache-2.0
//
// Bytes and packets per time window, for every flow, exact and sparse: only
// windows with packets take room, most of them one byte. Windows are numbered
// absolutely, index = floor(ns / window_ns), so that intervals join exactly.
//
// Over budget the store gives up time resolution where it costs least:
// neighbouring windows of a flow become one piece that holds their sums. Sums stay
// exact, silences are the last to go, and every piece says how many windows it
// covers. See docs/measurement.md for the entries and for the order of merging.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pulse {

// floor(ns / window_ns) without a division.
class WindowClock {
 public:
  explicit WindowClock(std::uint64_t window_ns) noexcept
      : window_ns_(window_ns), inverse_(static_cast<std::uint64_t>(-1) / window_ns) {}

  [[nodiscard]] std::int64_t index(std::int64_t ns) const noexcept {
    if (ns < 0) return -static_cast<std::int64_t>(positive_index(static_cast<std::uint64_t>(-(ns + 1)))) - 1;
    return static_cast<std::int64_t>(positive_index(static_cast<std::uint64_t>(ns)));
  }

  [[nodiscard]] std::uint64_t window_ns() const noexcept { return window_ns_; }

 private:
  [[nodiscard]] std::uint64_t positive_index(std::uint64_t ns) const noexcept {
    __extension__ using Wide = unsigned __int128;
    const auto quotient = static_cast<std::uint64_t>((static_cast<Wide>(ns) * inverse_) >> 64);
    // The rounded inverse leaves the quotient at most two too small.
    const std::uint64_t rest = ns - quotient * window_ns_;
    return quotient + (rest >= window_ns_ ? 1 : 0) + (rest >= 2 * window_ns_ ? 1 : 0);
  }

  std::uint64_t window_ns_;
  std::uint64_t inverse_;
};

// One window, or a piece: `length` windows in a row that are known by their sums only.
struct Window {
  std::int64_t index;
  std::uint64_t bytes;
  std::uint32_t packets;
  std::uint32_t length = 1;
};

// One stream of windows per flow slot. The newest entries stand in the stream's own
// cache line, older ones in chunks of a cache line from one arena, which is bounded.
class WindowStore {
 public:
  // `budget_bytes` bounds the arena; the streams themselves take 64 bytes per slot that was used.
  WindowStore(std::size_t slots, std::size_t budget_bytes);

  // Sums of one index may come in parts and in any order. `packets` is at least one.
  void append(std::size_t slot, std::int64_t index, std::uint64_t bytes, std::uint32_t packets) {
    Stream& stream = streams_[slot];
    Context& context = stream.context;
    const std::uint8_t entry = short_entry(context, index, bytes, packets);
    if (entry == kLong || stream.staged_used == kStaged) return append_slowly(stream, {index, bytes, packets});
    stream.staged[stream.staged_used++] = entry;
    context.next_index = index + 1;
    context.packets = packets;
  }

  void prefetch(std::size_t slot) const noexcept { __builtin_prefetch(&streams_[slot], 1); }

  // Moves the slot's windows to `out`, ascending, none overlapping another, and leaves the slot empty.
  void take(std::size_t slot, std::vector<Window>& out);

  // Sets the slot's windows aside for a flow that has left it; the slot becomes empty.
  void retire(std::size_t slot, std::uint32_t flow);
  // Drops the slot's windows, if it has any.
  void forget(std::size_t slot) { release(streams_[slot]); }
  // Moves the windows of one flow set aside to `out` like take(), and returns the flow; there is one.
  std::uint32_t take_retired(std::vector<Window>& out);
  [[nodiscard]] bool has_retired() const noexcept { return !retired_.empty(); }

  // Windows that found no room even at the coarsest; none, unless sums exceed 32 bits.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

  // To be called once everything has been taken.
  void begin_interval() noexcept;

  // Memory in use, and the most that arena and streams will ever use.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  static constexpr std::uint32_t kNoChunk = 0xffffffffU;
  static constexpr std::size_t kChunkData = 60;
  static constexpr std::size_t kStaged = 38;
  // Entries of one byte, for windows whose packets all have the usual size:
  //   0ggggggp  g empty windows before it (0..63), p + 1 packets     10dddddd  none before it, d - 32 packets more
  static constexpr std::uint64_t kMaxShortGap = 63;
  static constexpr std::uint32_t kShortPackets = 2;
  static constexpr std::uint8_t kNextWindow = 0x80;
  static constexpr std::uint32_t kStepBias = 32;
  // An entry of several bytes begins with this and its flags; window_store.cpp says how it goes on.
  static constexpr std::uint8_t kLong = 0xc0;
  struct alignas(64) Chunk {
    std::array<std::uint8_t, kChunkData> data;
    std::uint32_t next;
  };
  // What the encoding of the next entry refers to.
  struct Context {
    std::int64_t next_index = 0;  // one past the entry before
    std::uint32_t packets = 0;    // of the entry before
    std::uint32_t unit = 0;       // bytes of a packet, the largest mean so far

    void follow(const Window& window) noexcept {
      next_index = window.index + window.length;
      packets = window.packets / window.length;
      if (window.packets != 0 && window.bytes / window.packets > unit) {
        unit = static_cast<std::uint32_t>(std::min<std::uint64_t>(window.bytes / window.packets, 0xffffffffU));
      }
    }
  };
  struct alignas(64) Stream {
    Context context;
    std::uint32_t head = kNoChunk;
    std::uint32_t tail = kNoChunk;
    std::uint8_t tail_used = 0;
    std::uint8_t staged_used = 0;
    std::array<std::uint8_t, kStaged> staged;
  };
  static_assert(sizeof(Stream) == 64);
  struct Retired {
    std::uint32_t flow;
    Stream stream;
  };

  // The entry of one byte, or kLong when there is none for this window.
  static std::uint8_t short_entry(const Context& context, std::int64_t index, std::uint64_t bytes,
                                  std::uint32_t packets) noexcept {
    const auto gap = static_cast<std::uint64_t>(index - context.next_index);
    const std::uint32_t step = packets - context.packets + kStepBias;
    if (bytes != std::uint64_t{packets} * context.unit) return kLong;
    if (gap <= kMaxShortGap && packets - 1 < kShortPackets) return static_cast<std::uint8_t>(gap << 1 | (packets - 1));
    return gap == 0 && step < 2 * kStepBias ? static_cast<std::uint8_t>(kNextWindow | step) : kLong;
  }

  static std::size_t encode(Context& context, const Window& window, std::uint8_t* out) noexcept;
  static std::size_t encode_long(Context& context, const Window& window, std::uint8_t* out) noexcept;
  void append_slowly(Stream& stream, const Window& window);
  [[nodiscard]] bool flush(Stream& stream);
  [[nodiscard]] std::uint32_t allocate();
  void decode(const Stream& stream, std::vector<Window>& out) const;
  void move_out(Stream& stream, std::vector<Window>& out);
  void release(Stream& stream);
  [[nodiscard]] bool make_room();
  void rewrite(Stream& stream);
  void replace(Stream& stream, const std::vector<Window>& windows);

  std::vector<Stream> streams_;
  std::vector<Retired> retired_;
  std::vector<Chunk> chunks_;
  std::uint32_t free_ = kNoChunk;  // a list through Chunk::next
  std::size_t free_count_ = 0;
  std::size_t max_chunks_;
  double tolerance_;
  std::uint64_t lost_ = 0;
  std::vector<Window> scratch_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace pulse
