// SPDX-License-Identifier: Apache-2.0
#include "pulse/window_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "window_merging.hpp"

namespace pulse {

namespace {

// Share of the arena that giving up resolution must free: less, and it would be done all the time.
constexpr std::size_t kRoomShare = 4;

constexpr double kFirstTolerance = 1e-4;
constexpr double kToleranceStep = 4;
constexpr double kLastTolerance = 1e12;

}  // namespace

WindowStore::WindowStore(std::size_t slots, std::size_t budget_bytes)
    : streams_(slots),
      max_chunks_(std::max<std::size_t>(budget_bytes / sizeof(Chunk), 1)),
      tolerance_(kFirstTolerance) {
  chunks_.reserve(max_chunks_);  // address space; memory is used only when chunks are
}

void WindowStore::append_slowly(Stream& stream, const Window& window) {
  for (;;) {
    std::array<std::uint8_t, WindowContext::kMaxEntryBytes> bytes;
    WindowContext context = stream.context;
    const std::size_t size = context.encode(window, bytes.data());
    if (stream.staged_used + size <= kStaged) {
      std::memcpy(stream.staged.data() + stream.staged_used, bytes.data(), size);
      stream.staged_used = static_cast<std::uint8_t>(stream.staged_used + size);
      stream.context = context;
      return;
    }
    if (!flush(stream) && !make_room()) {  // which may have changed the stream
      ++lost_;
      return;
    }
  }
}

// Moves the staged bytes to the arena, all or none.
bool WindowStore::flush(Stream& stream) {
  const std::size_t room = stream.tail == kNoChunk ? 0 : kChunkData - stream.tail_used;
  const std::size_t now = std::min<std::size_t>(room, stream.staged_used);
  const std::size_t later = stream.staged_used - now;
  std::uint32_t added = kNoChunk;
  if (later > 0) {
    added = allocate();
    if (added == kNoChunk) return false;
  }
  if (now > 0) std::memcpy(chunks_[stream.tail].data.data() + stream.tail_used, stream.staged.data(), now);
  stream.tail_used = static_cast<std::uint8_t>(stream.tail_used + now);
  if (added != kNoChunk) {
    std::memcpy(chunks_[added].data.data(), stream.staged.data() + now, later);
    (stream.tail == kNoChunk ? stream.head : chunks_[stream.tail].next) = added;
    stream.tail = added;
    stream.tail_used = static_cast<std::uint8_t>(later);
  }
  stream.staged_used = 0;
  return true;
}

std::uint32_t WindowStore::allocate() {
  std::uint32_t index = free_;
  if (index != kNoChunk) {
    free_ = chunks_[index].next;
    --free_count_;
  } else if (chunks_.size() < max_chunks_) {
    index = static_cast<std::uint32_t>(chunks_.size());
    chunks_.emplace_back();
  } else {
    return kNoChunk;
  }
  chunks_[index].next = kNoChunk;
  return index;
}

void WindowStore::release(Stream& stream) {
  for (std::uint32_t at = stream.head; at != kNoChunk;) {
    const std::uint32_t next = chunks_[at].next;
    chunks_[at].next = free_;
    free_ = at;
    ++free_count_;
    at = next;
  }
  stream = Stream{};
}

void WindowStore::copy_bytes(const Stream& stream, std::vector<std::uint8_t>& out) const {
  for (std::uint32_t at = stream.head; at != kNoChunk; at = chunks_[at].next) {
    const std::uint8_t* data = chunks_[at].data.data();
    out.insert(out.end(), data, data + (at == stream.tail ? stream.tail_used : kChunkData));
  }
  out.insert(out.end(), stream.staged.begin(), stream.staged.begin() + stream.staged_used);
}

void WindowStore::decode(const Stream& stream, std::vector<Window>& out) {
  bytes_.clear();
  copy_bytes(stream, bytes_);
  decode_entries(bytes_, std::numeric_limits<std::size_t>::max(), out);
}

void WindowStore::take(std::size_t slot, std::vector<Window>& out) {
  const std::size_t from = out.size();
  decode(streams_[slot], out);
  release(streams_[slot]);
  sort_windows(out, from);
}

void WindowStore::take_entries(std::size_t slot, std::vector<std::uint8_t>& out) {
  copy_bytes(streams_[slot], out);
  release(streams_[slot]);
}

void WindowStore::retire(std::size_t slot, std::uint32_t flow) {
  Stream& stream = streams_[slot];
  if (stream.head == kNoChunk && stream.staged_used == 0) return;
  retired_.push_back({flow, stream});
  stream = Stream{};
}

std::uint32_t WindowStore::take_retired(std::vector<std::uint8_t>& out) {
  const std::uint32_t flow = retired_.back().flow;
  copy_bytes(retired_.back().stream, out);
  release(retired_.back().stream);
  retired_.pop_back();
  return flow;
}

void WindowStore::begin_interval() {
  // What was too much in one interval will be in the next: begin a little below.
  tolerance_ = std::max(kFirstTolerance, tolerance_ / (kToleranceStep * kToleranceStep));
  lost_ = 0;
  degraded_ = false;
  free_ = kNoChunk;
  free_count_ = 0;
  // Memory goes back while the frame is made; an interval later it may be needed elsewhere.
  std::vector<Chunk>().swap(chunks_);
  chunks_.reserve(max_chunks_);
}

std::size_t WindowStore::entry_bytes() const noexcept {
  std::size_t sum = (chunks_.size() - free_count_) * kChunkData + retired_.size() * kStaged;
  for (const Stream& stream : streams_) sum += stream.staged_used;
  return sum;
}

std::size_t WindowStore::memory_bytes() const noexcept {
  return streams_.size() * sizeof(Stream) + chunks_.size() * sizeof(Chunk) + retired_.capacity() * sizeof(Retired) +
         scratch_.capacity() * sizeof(Window);
}

// Gives up resolution, in all streams alike, until a part of the arena is free. With the last tolerance a
// stream is one entry, which needs no chunk, unless its sums would exceed 32 bits; only then this can fail.
bool WindowStore::make_room() {
  degraded_ = true;
  const std::size_t wanted = std::max<std::size_t>(max_chunks_ / kRoomShare, 1);
  for (;;) {
    for (Stream& stream : streams_) rewrite(stream);
    for (Retired& retired : retired_) rewrite(retired.stream);
    if (free_count_ + (max_chunks_ - chunks_.size()) >= wanted) return true;
    if (std::isinf(tolerance_)) return free_count_ != 0;
    tolerance_ = tolerance_ < kLastTolerance ? tolerance_ * kToleranceStep : std::numeric_limits<double>::infinity();
  }
}

void WindowStore::rewrite(Stream& stream) {
  if (stream.head == kNoChunk) return;
  scratch_.clear();
  decode(stream, scratch_);
  sort_windows(scratch_, 0);
  merge_windows(scratch_, tolerance_);
  replace(stream, scratch_);
}

// Never takes more memory than before: when the new entries are longer, the old ones stay.
void WindowStore::replace(Stream& stream, const std::vector<Window>& windows) {
  std::size_t before = stream.staged_used;
  for (std::uint32_t at = stream.head; at != kNoChunk; at = chunks_[at].next) {
    before += at == stream.tail ? stream.tail_used : kChunkData;
  }
  bytes_.clear();
  WindowContext context;
  std::array<std::uint8_t, WindowContext::kMaxEntryBytes> entry;
  for (const Window& window : windows) {
    const std::size_t size = context.encode(window, entry.data());
    bytes_.insert(bytes_.end(), entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(size));
    if (bytes_.size() >= before) return;
  }
  release(stream);
  stream.context = context;
  // Full chunks but for the last, and as much as fits in the stream itself: no more chunks than were released.
  const std::size_t in_stream = std::min(kStaged, bytes_.size());
  const std::size_t in_chunks = bytes_.size() - in_stream;
  for (std::size_t at = 0; at < in_chunks; at += kChunkData) {
    const std::uint32_t added = allocate();
    stream.tail_used = static_cast<std::uint8_t>(std::min(kChunkData, in_chunks - at));
    std::memcpy(chunks_[added].data.data(), bytes_.data() + at, stream.tail_used);
    (stream.tail == kNoChunk ? stream.head : chunks_[stream.tail].next) = added;
    stream.tail = added;
  }
  std::memcpy(stream.staged.data(), bytes_.data() + in_chunks, in_stream);
  stream.staged_used = static_cast<std::uint8_t>(in_stream);
}

}  // namespace pulse
