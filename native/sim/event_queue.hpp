// SPDX-License-Identifier: Apache-2.0
//
// The event queue: events in the order of their times, equal times in the order
// in which they were asked for.
//
// Most events are due within microseconds. A wheel of short slots holds them
// unsorted, a slot is sorted when its turn comes; what is due later waits in a heap.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/packet_run.hpp"

namespace pulse::sim {

// What happens; `subject` and `detail` of the event say to whom. Grouped by the layer that handles it.
enum class EventKind : std::uint8_t {
  // network
  nic_serve,        // NIC: may send again
  port_arrive,      // segment: its first packet is at its next port
  port_serve,       // port: may send again
  nic_arrive,       // segment: its last packet is at its NIC
  nic_drained,      // segment: it has left the receive buffer
  pause_upstream,   // transmitter: must stop sending
  resume_upstream,  // transmitter: may send again
  foreign_burst,    // foreign load
  // transport
  rate_wake,         // connection end: its rate allows the next segment
  send_acknowledge,  // connection end: a delayed ACK is due
  retry_timer,       // connection end
  // library
  host_action,   // host action: its turn has come
  step_done,     // operation, thread: the GPU has done a step
  rank_advance,  // rank: goes on with its program
  trigger,       // trigger: its delay is over
  inject,        // message that belongs to no collective
};

struct Event {
  Picoseconds time_ps = 0;
  std::uint64_t order = 0;  // counter and kind
  std::uint32_t subject = 0;
  std::uint32_t detail = 0;

  [[nodiscard]] EventKind kind() const noexcept { return static_cast<EventKind>(order & 0xff); }
};

class EventQueue {
 public:
  EventQueue() { heads_.fill(kNone); }

  [[nodiscard]] Picoseconds now() const noexcept { return now_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::uint64_t count() const noexcept { return asked_; }

  // Of a queue that is not empty.
  [[nodiscard]] Picoseconds next_time() {
    if (current_.empty()) open_next_slot();
    return current_.back().time_ps;
  }

  // A time in the past means now.
  void at(Picoseconds time_ps, EventKind kind, std::uint32_t subject, std::uint32_t detail = 0) {
    const std::uint64_t order = asked_++ << 8 | static_cast<std::uint64_t>(kind);
    push({std::max(time_ps, now_), order, subject, detail});
  }

  void after(Picoseconds delay_ps, EventKind kind, std::uint32_t subject, std::uint32_t detail = 0) {
    at(now_ + delay_ps, kind, subject, detail);
  }

  // Takes the next event of a queue that is not empty and stands at its time.
  Event pop() {
    if (current_.empty()) open_next_slot();
    const Event first = current_.back();
    current_.pop_back();
    --size_;
    now_ = first.time_ps;
    return first;
  }

  void stand_at(Picoseconds time_ps) noexcept { now_ = std::max(now_, time_ps); }

 private:
  static constexpr unsigned kSlotBits = 16;  // a slot lasts 2^16 ps
  static constexpr std::size_t kSlots = 4096;
  static constexpr std::size_t kWords = kSlots / 64;
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  struct Node {
    Event event;
    std::uint32_t next = kNone;  // of the same slot, or unused
  };

  [[nodiscard]] static bool later(const Event& a, const Event& b) noexcept {
    return a.time_ps != b.time_ps ? a.time_ps > b.time_ps : a.order > b.order;
  }

  void push(const Event& event) {
    ++size_;
    const Picoseconds slot = event.time_ps >> kSlotBits;
    if (slot <= open_slot_) {
      current_.insert(std::ranges::lower_bound(current_, event, later), event);
    } else if (slot < open_slot_ + static_cast<Picoseconds>(kSlots)) {
      put_in_slot(event);
    } else {
      far_.push_back(event);
      std::ranges::push_heap(far_, later);
    }
  }

  void put_in_slot(const Event& event) {
    const std::size_t place = static_cast<std::size_t>(event.time_ps >> kSlotBits) % kSlots;
    std::uint32_t node = unused_;
    if (node == kNone) {
      node = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      unused_ = nodes_[node].next;
    }
    nodes_[node] = {event, heads_[place]};
    heads_[place] = node;
    filled_[place / 64] |= std::uint64_t{1} << place % 64;
    ++in_slots_;
  }

  // Moves the events of the earliest slot that has any to `current_`, the next one last.
  void open_next_slot() {
    open_slot_ = in_slots_ > 0 ? next_filled() : far_.front().time_ps >> kSlotBits;
    // The wheel has turned: what waits for later may fit onto it now.
    while (!far_.empty() && far_.front().time_ps >> kSlotBits < open_slot_ + static_cast<Picoseconds>(kSlots)) {
      put_in_slot(far_.front());
      std::ranges::pop_heap(far_, later);
      far_.pop_back();
    }
    const std::size_t place = static_cast<std::size_t>(open_slot_) % kSlots;
    for (std::uint32_t node = heads_[place]; node != kNone;) {
      current_.push_back(nodes_[node].event);
      const std::uint32_t next = nodes_[node].next;
      nodes_[node].next = unused_;
      unused_ = node;
      node = next;
      --in_slots_;
    }
    heads_[place] = kNone;
    filled_[place / 64] &= ~(std::uint64_t{1} << place % 64);
    if (current_.size() > 1) std::ranges::sort(current_, later);
  }

  // The first slot behind the open one that holds events; one does.
  [[nodiscard]] Picoseconds next_filled() const noexcept {
    const auto begin = static_cast<std::size_t>(open_slot_ + 1) % kSlots;
    std::size_t word = begin / 64;
    std::uint64_t bits = filled_[word] & ~std::uint64_t{0} << begin % 64;
    while (bits == 0) bits = filled_[word = (word + 1) % kWords];
    const std::size_t place = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    return open_slot_ + 1 + static_cast<Picoseconds>((place + kSlots - begin) % kSlots);
  }

  std::vector<Event> current_;  // of the open slot and before it, the next one last
  std::array<std::uint32_t, kSlots> heads_{};
  std::array<std::uint64_t, kWords> filled_{};
  std::vector<Node> nodes_;
  std::vector<Event> far_;  // a heap, the earliest in front
  std::uint32_t unused_ = kNone;
  std::size_t in_slots_ = 0;
  std::size_t size_ = 0;
  Picoseconds open_slot_ = 0;
  std::uint64_t asked_ = 0;
  Picoseconds now_ = 0;
};

}  // namespace pulse::sim
