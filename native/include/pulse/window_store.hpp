// SPDX-License-Identifier: Apache-2.0
//
// Bytes and packets per time window, for every flow, exact and sparse: only
// windows with packets take room, most of them one byte. Windows are numbered
// absolutely, index = floor(ns / window_ns), so that intervals join exactly.
//
// Over budget the store gives up time resolution where it costs least:
// neighbouring windows of a flow become one piece that holds their sums. Sums stay
// exact, silences are the last to go, and every piece says how many windows it
// covers. See docs/measurement.md for the order of merging.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pulse/window_series.hpp"

namespace pulse {

// One stream of windows per flow slot. The newest entries stand in the stream's own
// cache line, older ones in chunks of a cache line from one arena, which is bounded.
class WindowStore {
 public:
  // `budget_bytes` bounds the arena; the streams themselves take 64 bytes per slot that was used.
  WindowStore(std::size_t slots, std::size_t budget_bytes);

  // Sums of one index may come in parts and in any order. `packets` is at least one.
  void append(std::size_t slot, std::int64_t index, std::uint64_t bytes, std::uint32_t packets) {
    Stream& stream = streams_[slot];
    WindowContext& context = stream.context;
    const std::uint8_t entry = context.short_entry(index, bytes, packets);
    if (entry == WindowContext::kLong || stream.staged_used == kStaged)
      return append_slowly(stream, {index, bytes, packets});
    stream.staged[stream.staged_used++] = entry;
    context.next_index = index + 1;
    context.packets = packets;
  }

  void prefetch(std::size_t slot) const noexcept { __builtin_prefetch(&streams_[slot], 1); }

  // Moves the slot's windows to `out`, ascending, none overlapping another, and leaves the slot empty.
  void take(std::size_t slot, std::vector<Window>& out);
  // The same as entries, in the order in which they came (window_series.hpp).
  void take_entries(std::size_t slot, std::vector<std::uint8_t>& out);

  // Sets the slot's windows aside for a flow that has left it; the slot becomes empty.
  void retire(std::size_t slot, std::uint32_t flow);
  // Drops the slot's windows, if it has any.
  void forget(std::size_t slot) { release(streams_[slot]); }
  // Moves the entries of one flow set aside to `out`, and returns the flow; there is one.
  std::uint32_t take_retired(std::vector<std::uint8_t>& out);
  [[nodiscard]] bool has_retired() const noexcept { return !retired_.empty(); }

  // Whether windows have become pieces since begin_interval().
  [[nodiscard]] bool degraded() const noexcept { return degraded_; }
  // Windows that found no room even at the coarsest; none, unless sums exceed 32 bits.
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

  // To be called once everything has been taken.
  void begin_interval();

  // At most as many bytes as all entries have.
  [[nodiscard]] std::size_t entry_bytes() const noexcept;

  // Memory in use, and the most that arena and streams will ever use.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  static constexpr std::uint32_t kNoChunk = 0xffffffffU;
  static constexpr std::size_t kChunkData = 60;
  static constexpr std::size_t kStaged = 38;
  struct alignas(64) Chunk {
    std::array<std::uint8_t, kChunkData> data;
    std::uint32_t next;
  };
  struct alignas(64) Stream {
    WindowContext context;
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

  void append_slowly(Stream& stream, const Window& window);
  [[nodiscard]] bool flush(Stream& stream);
  [[nodiscard]] std::uint32_t allocate();
  void decode(const Stream& stream, std::vector<Window>& out);
  void copy_bytes(const Stream& stream, std::vector<std::uint8_t>& out) const;
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
  bool degraded_ = false;
  std::uint64_t lost_ = 0;
  std::vector<Window> scratch_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace pulse
