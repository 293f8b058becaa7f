// SPDX-License-Identifier: Apache-2.0
//
// What the meter keeps per flow. The packets of a running message read and write
// the first cache line of HotFlow and one of gap counts; once per window they need
// the second line and one of the window store. The rest stays out of their way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "pulse/elapsed.hpp"
#include "pulse/flow_table.hpp"
#include "pulse/histogram.hpp"
#include "pulse/message_tracker.hpp"
#include "pulse/psn.hpp"
#include "pulse/records.hpp"
#include "pulse/saturating.hpp"

namespace pulse {

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

inline constexpr std::uint64_t kProvenPackets = 4;

struct alignas(64) HotFlow {
  // First line: all that a packet in a run changes. A run is what the open message gets in order, within one
  // burst; what it adds to message and window is told by the totals, and noted by end_run() and close_window().
  ShortKey key;
  std::uint32_t data_packets = 0;  // of the interval
  std::int64_t last_data_ns = kNever;
  PsnPosition psn_next = kNoPosition;  // of requests
  std::uint64_t wire_bytes = 0;        // of the interval, as are these:
  std::uint64_t data_bytes = 0;
  std::int64_t window_index = 0;
  std::uint32_t longest_gap_ns = 0;  // in the run
  bool in_run = false;
  bool was_proven = false;  // in an interval before

  // Second line. Message, burst and window hold what came after their `before` totals.
  std::uint64_t window_bytes_before = 0;
  std::uint32_t window_packets_before = 0;
  std::uint32_t run_packets_before = 0;
  std::uint64_t run_bytes_before = 0;
  std::uint64_t burst_bytes_before = 0;
  std::int64_t burst_first_ns = 0;
  std::uint32_t burst_packets_before = 0;  // no burst is open when this equals the total
  std::uint32_t burst_longest_gap_ns = 0;
  std::int64_t last_ns = 0;         // any packet; those of a run are told by last_data_ns
  std::uint32_t other_packets = 0;  // neither data nor requests
  std::uint32_t flow = kNoFlow;

  OpenMessage message;  // the open request, without the packets of the run

  [[nodiscard]] std::uint64_t packets() const noexcept { return std::uint64_t{data_packets} + other_packets; }
  [[nodiscard]] std::int64_t latest_ns() const noexcept { return in_run ? std::max(last_ns, last_data_ns) : last_ns; }
  // Whether it has sent more than a scan would: those make room for others last.
  [[nodiscard]] bool is_proven() const noexcept { return was_proven || packets() >= kProvenPackets; }
  [[nodiscard]] bool burst_is_open() const noexcept { return data_packets != burst_packets_before; }

  // Adds the run to what it belongs to. Everything but packets of a run has to do this first.
  void end_run() noexcept {
    if (!in_run) return;
    in_run = false;
    last_ns = std::max(last_ns, last_data_ns);
    burst_longest_gap_ns = std::max(burst_longest_gap_ns, longest_gap_ns);
    message.longest_gap_ns = std::max(message.longest_gap_ns, longest_gap_ns);
    message.last_ns = last_data_ns;
    message.last = psn_next - 1;
    add_saturating(message.packets, data_packets - run_packets_before);
    message.payload_bytes += data_bytes - run_bytes_before;
  }

  // Packets may come in a run from here on, if the open message got the last data packet.
  void begin_run() noexcept {
    if (message.packets == 0 || message.last_ns != last_data_ns || message.last != psn_next - 1 || !burst_is_open()) {
      return;
    }
    in_run = true;
    longest_gap_ns = 0;
    run_packets_before = data_packets;
    run_bytes_before = data_bytes;
  }
};
static_assert(sizeof(HotFlow) == 192);
static_assert(offsetof(HotFlow, window_bytes_before) == 64 && offsetof(HotFlow, message) == 128);

// Gaps between data packets. Counts of 16 bits keep the cells from 256 ns to 16 ms in one line; one that
// overflows begins anew, and the meter notes that apart.
struct alignas(64) GapCounts {
  static constexpr unsigned kFirstCell = 16;
  std::array<std::uint16_t, kHistogramCells> counts{};  // cell c stands at (c - kFirstCell) mod 64

  [[nodiscard]] static constexpr unsigned place(unsigned cell) noexcept {
    return (cell - kFirstCell) % kHistogramCells;
  }
  // True when the count has overflowed.
  [[nodiscard]] bool add(unsigned cell) noexcept { return ++counts[place(cell)] == 0; }
};
static_assert(sizeof(GapCounts) == 128);

// READ responses: a PSN space and messages of their own.
struct ResponseStream {
  explicit ResponseStream(bool can_repair) noexcept : messages(can_repair) {}

  PsnPosition psn_next = kNoPosition;
  PsnHistory psns;
  OpenMessage message;
  MessageTracker messages;
};

inline constexpr std::size_t kEventKinds = 12;  // EventKind values stay below

struct ColdFlow {
  explicit ColdFlow(bool can_repair) noexcept : messages(can_repair) {}

  FlowRecord record{};  // identity, and counts of the interval that HotFlow does not hold
  PsnHistory psns;
  MessageTracker messages;
  std::unique_ptr<ResponseStream> responses;
  std::uint32_t last_nak_psn = 0xffffffffU;
  // Index of the flow's last event of a kind among the interval's events; an entry of
  // another flow, kind or interval is told by looking there.
  std::array<std::uint32_t, kEventKinds> last_event{};
  Histogram sizes;
  Histogram latencies;

  [[nodiscard]] std::size_t heap_bytes() const noexcept {
    std::size_t sum = psns.heap_bytes() + messages.heap_bytes();
    if (responses) sum += sizeof(ResponseStream) + responses->psns.heap_bytes() + responses->messages.heap_bytes();
    return sum;
  }
};

}  // namespace pulse
