// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds per packet of the meter, beside the floor of what any meter must do:
// read one byte of each header, and read, change and write one cache line of that
// packet's flow, with the index known and each batch's lines fetched ahead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "traffic.hpp"

namespace pulse::bench {

struct PathRequest {
  TrafficConfig traffic;
  std::uint64_t window_ns = 8'000;
  std::size_t batch_packets = 1U << 15;
  unsigned repetitions = 41;
};

// The quickest of the repetitions, nanoseconds per packet.
struct PathResult {
  double floor_ns = 0;
  double parse_ns = 0;      // headers to records alone
  double meter_ns = 0;      // parse and update
  double cut_ns = 0;        // closing an interval, spread over its packets
  double median_ratio = 0;  // of meter to floor, repetition by repetition
  std::uint64_t packets = 0;
  std::uint64_t checksum = 0;  // so that the floor cannot be optimized away
};

// Floor, parse and meter take turns on the same packets.
[[nodiscard]] PathResult measure_path(const PathRequest& request);

}  // namespace pulse::bench
