// SPDX-License-Identifier: Apache-2.0
//
// Bytes and packets per time window, for every flow, exact and sparse: only
// windows with packets take room, about three bytes each. Windows are numbered
// absolutely, index = floor(ns / window_ns), so that intervals join exactly.
#pragma once

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

 private:
  [[nodiscard]] std::uint64_t positive_index(std::uint64_t ns) const noexcept {
    __extension__ using Wide = unsigned __int128;
    auto quotient = static_cast<std::uint64_t>((static_cast<Wide>(ns) * inverse_) >> 64);
    // The rounded inverse leaves the quotient at most two too small.
    for (std::uint64_t rest = ns - quotient * window_ns_; rest >= window_ns_; rest -= window_ns_) ++quotient;
    return quotient;
  }

  std::uint64_t window_ns_;
  std::uint64_t inverse_;
};

struct Window {
  std::int64_t index;
  std::uint64_t bytes;
  std::uint32_t packets;
};

// Streams of windows, one per flow slot, in chunks of one cache line from one
// arena. When the arena is full, all windows double in width and neighbours
// merge: sums stay exact, only time becomes coarser, and shift() says how much.
class WindowStore {
 public:
  // `budget_bytes` bounds the arena; `max_shift` bounds the doubling.
  WindowStore(std::size_t slots, std::size_t budget_bytes, unsigned max_shift);

  // `index` counts windows of the configured width; sums of one index may come in parts and in any order.
  void append(std::size_t slot, std::int64_t index, std::uint64_t bytes, std::uint32_t packets);

  void prefetch(std::size_t slot) const noexcept { __builtin_prefetch(&streams_[slot], 1); }

  // Moves the slot's windows to `out`, ascending and merged, numbered in windows of the width
  // configured << shift(), and leaves the slot empty.
  void take(std::size_t slot, std::vector<Window>& out);

  // Sets the slot's windows aside for a flow that has left it; the slot becomes empty.
  void retire(std::size_t slot, std::uint32_t flow);
  // Drops the slot's windows, if it has any.
  void forget(std::size_t slot) { release(streams_[slot]); }
  // Moves the windows of one flow set aside to `out` like take(), and returns the flow; there is one.
  std::uint32_t take_retired(std::vector<Window>& out);
  [[nodiscard]] bool has_retired() const noexcept { return !retired_.empty(); }

  [[nodiscard]] unsigned shift() const noexcept { return shift_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

  // To the configured width again, once everything has been taken.
  void begin_interval() noexcept {
    shift_ = 0;
    lost_ = 0;
  }

 private:
  static constexpr std::uint32_t kNoChunk = 0xffffffffU;
  static constexpr std::size_t kChunkData = 60;
  struct alignas(64) Chunk {
    std::array<std::uint8_t, kChunkData> data;
    std::uint32_t next;
  };
  struct alignas(64) Stream {
    Window pending{0, 0, 0};  // not yet encoded; empty when packets is 0
    std::int64_t last_index = 0;
    std::uint32_t head = kNoChunk;
    std::uint32_t tail = kNoChunk;
    std::uint32_t tail_used = 0;
  };
  struct Retired {
    std::uint32_t flow;
    Stream stream;
  };

  void encode_pending(Stream& stream);
  bool write(Stream& stream, const std::uint8_t* bytes, std::size_t size);
  std::uint32_t allocate();
  void coarsen();
  void coarsen(Stream& stream);
  void move_out(Stream& stream, std::vector<Window>& out);
  void decode(const Stream& stream, std::vector<Window>& out) const;
  void release(Stream& stream);

  std::vector<Stream> streams_;
  std::vector<Retired> retired_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint32_t> free_;
  std::vector<Window> scratch_;
  std::size_t max_chunks_;
  unsigned max_shift_;
  unsigned shift_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace pulse
