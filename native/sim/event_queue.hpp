// SPDX-License-Identifier: Apache-2.0
//
// The event queue: events in the order of their times, equal times in the order
// in which they were asked for.
#pragma once

#include <algorithm>
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
  [[nodiscard]] Picoseconds now() const noexcept { return now_; }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] Picoseconds next_time() const noexcept { return heap_.front().time_ps; }
  [[nodiscard]] std::uint64_t count() const noexcept { return asked_; }

  // A time in the past means now.
  void at(Picoseconds time_ps, EventKind kind, std::uint32_t subject, std::uint32_t detail = 0) {
    const std::uint64_t order = asked_++ << 8 | static_cast<std::uint64_t>(kind);
    push({std::max(time_ps, now_), order, subject, detail});
  }

  void after(Picoseconds delay_ps, EventKind kind, std::uint32_t subject, std::uint32_t detail = 0) {
    at(now_ + delay_ps, kind, subject, detail);
  }

  // Takes the next event and stands at its time.
  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(last);
    now_ = first.time_ps;
    return first;
  }

  void stand_at(Picoseconds time_ps) noexcept { now_ = std::max(now_, time_ps); }

 private:
  static constexpr std::size_t kWays = 4;  // children of a node: fewer cache misses than a binary heap

  [[nodiscard]] static bool before(const Event& a, const Event& b) noexcept {
    return a.time_ps != b.time_ps ? a.time_ps < b.time_ps : a.order < b.order;
  }

  void push(const Event& event) {
    std::size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const std::size_t parent = (at - 1) / kWays;
      if (!before(event, heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }

  void sift_down(const Event& event) {
    const std::size_t size = heap_.size();
    std::size_t at = 0;
    for (;;) {
      const std::size_t first = at * kWays + 1;
      if (first >= size) break;
      std::size_t best = first;
      const std::size_t end = std::min(first + kWays, size);
      for (std::size_t child = first + 1; child < end; ++child) {
        if (before(heap_[child], heap_[best])) best = child;
      }
      if (!before(heap_[best], event)) break;
      heap_[at] = heap_[best];
      at = best;
    }
    heap_[at] = event;
  }

  std::vector<Event> heap_;
  std::uint64_t asked_ = 0;
  Picoseconds now_ = 0;
};

}  // namespace pulse::sim
