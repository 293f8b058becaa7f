// SPDX-License-Identifier: Apache-2.0
#include "pulse/window_store.hpp"

#include <algorithm>
#include <cstring>

#include "pulse/varint.hpp"

namespace pulse {

namespace {

// Sums windows of equal index; usually they are sorted already.
void sort_and_merge(std::vector<Window>& windows, std::size_t from) {
  const auto begin = windows.begin() + static_cast<std::ptrdiff_t>(from);
  const auto by_index = [](const Window& a, const Window& b) { return a.index < b.index; };
  if (!std::is_sorted(begin, windows.end(), by_index)) std::sort(begin, windows.end(), by_index);
  auto last = begin;
  for (auto window = begin; window != windows.end(); ++window) {
    if (window == begin) continue;
    if (window->index == last->index) {
      last->bytes += window->bytes;
      last->packets += window->packets;
    } else {
      *++last = *window;
    }
  }
  if (begin != windows.end()) windows.erase(last + 1, windows.end());
}

}  // namespace

WindowStore::WindowStore(std::size_t slots, std::size_t budget_bytes, unsigned max_shift)
    : streams_(slots), max_chunks_(std::max(budget_bytes / sizeof(Chunk), slots)), max_shift_(max_shift) {
  chunks_.reserve(max_chunks_);  // address space; memory is used only when chunks are
}

void WindowStore::append(std::size_t slot, std::int64_t index, std::uint64_t bytes, std::uint32_t packets) {
  Stream& stream = streams_[slot];
  const std::int64_t coarse = index >> shift_;
  if (stream.pending.packets != 0 && stream.pending.index != coarse) encode_pending(stream);
  // Encoding may have widened the windows.
  stream.pending.index = index >> shift_;
  stream.pending.bytes += bytes;
  stream.pending.packets += packets;
}

void WindowStore::encode_pending(Stream& stream) {
  for (;;) {
    std::array<std::uint8_t, 3 * kMaxVarintBytes> bytes;
    const Window window = stream.pending;
    std::size_t size = put_varint(bytes.data(), zigzag(window.index - stream.last_index));
    size += put_varint(bytes.data() + size, window.bytes);
    size += put_varint(bytes.data() + size, window.packets);
    if (write(stream, bytes.data(), size)) {
      stream.last_index = window.index;
      break;
    }
    if (shift_ == max_shift_) {
      lost_ += 1;
      break;
    }
    coarsen();  // changes stream.pending and stream.last_index too
  }
  stream.pending = {0, 0, 0};
}

// All or nothing: false when a chunk is needed and none is left.
bool WindowStore::write(Stream& stream, const std::uint8_t* bytes, std::size_t size) {
  const std::size_t room = stream.tail == kNoChunk ? 0 : kChunkData - stream.tail_used;
  const std::size_t now = std::min(room, size);
  std::uint32_t added = kNoChunk;
  if (now < size) {
    added = allocate();
    if (added == kNoChunk) return false;
  }
  if (now > 0) std::memcpy(chunks_[stream.tail].data.data() + stream.tail_used, bytes, now);
  stream.tail_used += static_cast<std::uint32_t>(now);
  if (added != kNoChunk) {
    std::memcpy(chunks_[added].data.data(), bytes + now, size - now);
    (stream.tail == kNoChunk ? stream.head : chunks_[stream.tail].next) = added;
    stream.tail = added;
    stream.tail_used = static_cast<std::uint32_t>(size - now);
  }
  return true;
}

std::uint32_t WindowStore::allocate() {
  std::uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (chunks_.size() < max_chunks_) {
    index = static_cast<std::uint32_t>(chunks_.size());
    chunks_.emplace_back();
  } else {
    return kNoChunk;
  }
  chunks_[index].next = kNoChunk;
  return index;
}

void WindowStore::coarsen() {
  ++shift_;
  for (Stream& stream : streams_) coarsen(stream);
  for (Retired& retired : retired_) coarsen(retired.stream);
}

void WindowStore::coarsen(Stream& stream) {
  const Window pending = stream.pending;
  if (stream.head != kNoChunk) {
    scratch_.clear();
    decode(stream, scratch_);
    release(stream);
    for (Window& window : scratch_) window.index >>= 1;
    sort_and_merge(scratch_, 0);
    for (const Window& window : scratch_) {
      stream.pending = window;
      encode_pending(stream);  // never longer than what was released, so it finds room
    }
  }
  stream.pending = {pending.index >> 1, pending.bytes, pending.packets};
}

void WindowStore::decode(const Stream& stream, std::vector<Window>& out) const {
  std::array<std::uint64_t, 3> fields{};
  std::size_t field = 0;
  unsigned bits = 0;
  std::int64_t index = 0;
  for (std::uint32_t at = stream.head; at != kNoChunk; at = chunks_[at].next) {
    const std::size_t used = at == stream.tail ? stream.tail_used : kChunkData;
    for (std::size_t i = 0; i < used; ++i) {
      const std::uint8_t byte = chunks_[at].data[i];
      fields[field] |= static_cast<std::uint64_t>(byte & 0x7f) << bits;
      bits += 7;
      if (byte >= 0x80) continue;
      bits = 0;
      if (++field < fields.size()) continue;
      index += unzigzag(fields[0]);
      out.push_back({index, fields[1], static_cast<std::uint32_t>(fields[2])});
      fields = {};
      field = 0;
    }
  }
}

void WindowStore::release(Stream& stream) {
  for (std::uint32_t at = stream.head; at != kNoChunk; at = chunks_[at].next) free_.push_back(at);
  stream = Stream{};
}

void WindowStore::move_out(Stream& stream, std::vector<Window>& out) {
  const std::size_t from = out.size();
  decode(stream, out);
  if (stream.pending.packets != 0) out.push_back(stream.pending);
  release(stream);
  sort_and_merge(out, from);
}

void WindowStore::take(std::size_t slot, std::vector<Window>& out) { move_out(streams_[slot], out); }

void WindowStore::retire(std::size_t slot, std::uint32_t flow) {
  Stream& stream = streams_[slot];
  if (stream.head == kNoChunk && stream.pending.packets == 0) return;
  retired_.push_back({flow, stream});
  stream = Stream{};
}

std::uint32_t WindowStore::take_retired(std::vector<Window>& out) {
  const std::uint32_t flow = retired_.back().flow;
  move_out(retired_.back().stream, out);
  retired_.pop_back();
  return flow;
}

}  // namespace pulse
