// SPDX-License-Identifier: Apache-2.0
//
// What a meter hands out at a cut.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "pulse/packet_parser.hpp"
#include "pulse/records.hpp"

namespace pulse {

struct IntervalCounters {
  std::array<std::uint64_t, kParseOutcomes> outcomes{};  // packets, by what the parser made of them
  std::uint64_t flows_created = 0;
  std::uint64_t flows_evicted = 0;  // table full: the coldest made room, its totals are in this interval
  std::uint64_t flows_aged_out = 0;
  std::uint64_t flows_lost = 0;    // evictions beyond the bound, and flows for which there is no number left
  std::uint64_t packets_lost = 0;  // in no total: those of the flows lost, and packets beyond the bound of an interval
  std::uint64_t records_lost = 0;  // messages, controls, bursts, markers and events beyond the bound
  std::uint64_t burst_gap_doublings = 0;  // how often the burst gap was doubled to stay within the bound
  std::uint64_t marker_halvings = 0;      // how often every second data marker was left out
  std::uint64_t windows_averaged = 0;     // windows that are known only by the sums of a piece, to stay in the budget
  std::uint64_t windows_lost = 0;         // windows beyond the budget, of sums beyond 32 bits
};

struct Interval {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t window_ns = 0;    // width of a window
  std::vector<FlowRecord> flows;  // with packets or ended messages in the interval, ascending by flow
  std::vector<MessageRecord> messages;
  std::vector<ControlRecord> controls;
  std::vector<BurstRecord> bursts;
  std::vector<MarkerRecord> markers;
  std::vector<EventRecord> events;
  std::vector<HistogramRecord> histograms;
  std::vector<std::uint8_t> series;  // windows of all flows, see window_series.hpp
  IntervalCounters counters;
};

}  // namespace pulse
