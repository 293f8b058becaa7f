// SPDX-License-Identifier: Apache-2.0
//
// What the meter keeps per flow. The packets of a running message read and write
// the first two cache lines of HotFlow, one histogram cell and, once per window,
// the window store; everything else is in ColdFlow.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>

#include "pulse/histogram.hpp"
#include "pulse/message_tracker.hpp"
#include "pulse/psn.hpp"
#include "pulse/records.hpp"

namespace pulse {

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

struct alignas(64) HotFlow {
  // Totals of the interval and the open window.
  std::int64_t last_ns = 0;  // any packet
  std::int64_t last_data_ns = kNever;
  std::int64_t window_index = 0;
  std::uint32_t window_bytes = 0;
  std::uint32_t window_packets = 0;  // 0: no window is open
  std::uint64_t wire_bytes = 0;
  std::uint64_t data_bytes = 0;
  std::uint32_t packets = 0;
  std::uint32_t data_packets = 0;
  PsnPosition psn_next = kNoPosition;  // of requests

  // The open burst holds what came after these totals; it is open when they differ from the present ones.
  std::uint32_t burst_packets_before = 0;
  std::uint32_t burst_longest_gap_ns = 0;
  std::int64_t burst_first_ns = 0;
  std::uint64_t burst_bytes_before = 0;

  OpenMessage message;  // the open request
};
static_assert(sizeof(HotFlow) == 192);

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
  Histogram gaps;
  Histogram sizes;
  Histogram latencies;
};

}  // namespace pulse
