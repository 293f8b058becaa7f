// SPDX-License-Identifier: Apache-2.0
#include "packet_path.hpp"

#include <time.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "pulse/meter.hpp"
#include "pulse/packet_parser.hpp"

namespace pulse::bench {

namespace {

constexpr std::size_t kBlock = 64;
constexpr unsigned kWarmPackets = 16;  // of each flow

struct alignas(64) FloorLine {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
};

// Processor time of this thread: on a machine that others use too, the clock on the wall would
// count their turns, and the longer of two measurements would look worse than it is.
double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <typename Action>
double ns_per_packet(std::size_t packets, Action action) {
  const double begin = thread_ns();
  action();
  return (thread_ns() - begin) / static_cast<double>(packets);
}

std::uint64_t run_floor(const PacketBatch& batch, std::span<const std::uint32_t> flows, std::span<FloorLine> lines) {
  for (std::size_t begin = 0; begin < batch.size(); begin += kBlock) {
    const std::size_t end = std::min(batch.size(), begin + kBlock);
    for (std::size_t i = begin; i < end; ++i) __builtin_prefetch(&lines[flows[i]], 1);
    for (std::size_t i = begin; i < end; ++i) {
      FloorLine& line = lines[flows[i]];
      line.packets += 1;
      line.bytes += std::to_integer<std::uint64_t>(batch.data(i)[0]) + 1;
    }
  }
  return lines[0].bytes;
}

// Parsed in blocks that stay in the cache, as the meter does.
std::uint64_t run_parser(const PacketBatch& batch, std::vector<PacketRecord>& records) {
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < batch.size(); begin += kBlock) {
    const std::size_t end = std::min(batch.size(), begin + kBlock);
    for (std::size_t i = begin; i < end; ++i) {
      PacketRecord& record = records[i - begin];
      static_cast<void>(parse_packet(batch.data(i), batch.link_types()[i], batch.wire_bytes()[i], record));
      sum += record.psn;
    }
  }
  return sum;
}

// A meter that saw something else than what was made would be measured in vain.
void check(const Interval& interval, std::size_t packets, std::uint32_t flows) {
  const std::uint64_t roce = interval.counters.outcomes[static_cast<std::size_t>(ParseOutcome::roce)];
  std::uint64_t counted = 0;
  std::uint64_t repeats = 0;
  for (const FlowRecord& flow : interval.flows) {
    counted += flow.packets;
    repeats += flow.repeat_packets + flow.gap_psns + flow.late_packets;
  }
  if (roce != packets || counted != packets || repeats != 0 || interval.flows.size() > flows) {
    throw std::logic_error("benchmark traffic was not measured as it was made: " + std::to_string(counted) + " of " +
                           std::to_string(packets) + " packets, " + std::to_string(repeats) + " out of order");
  }
}

}  // namespace

PathResult measure_path(const PathRequest& request) {
  Traffic traffic(request.traffic);
  MeterConfig config;
  config.window_ns = request.window_ns;
  config.max_flows = std::max(config.max_flows, request.traffic.flows);
  config.steered = request.traffic.steered;
  Meter meter(config);
  PacketBatch batch;
  std::vector<std::uint32_t> flows;
  std::vector<FloorLine> lines(request.traffic.flows);
  std::vector<PacketRecord> records(kBlock);
  constexpr double kMax = std::numeric_limits<double>::max();
  PathResult best{kMax, kMax, kMax, kMax, 0, 0, 0};
  std::vector<double> ratios;
  // The first rounds create the flows and bring each to the middle of a message; they are not counted.
  const std::size_t warm = std::max<std::size_t>(
      request.repetitions, 1 + std::size_t{kWarmPackets} * request.traffic.flows / request.batch_packets);
  std::int64_t begin_ns = traffic.now_ns();
  std::size_t all = 0;
  for (std::size_t round = 0; round < warm + request.repetitions; ++round) {
    traffic.fill(batch, request.batch_packets, flows);
    const std::size_t packets = batch.size();
    all += packets;
    const auto measure_floor = [&] {
      return ns_per_packet(packets, [&] { best.checksum += run_floor(batch, flows, lines); });
    };
    const auto measure_meter = [&] {
      return ns_per_packet(packets, [&] { static_cast<void>(meter.update_batch(batch, 0, std::nullopt)); });
    };
    double floor = 0;
    double metered = 0;
    if (round % 2 == 0) {
      floor = measure_floor();
      metered = measure_meter();
    } else {
      metered = measure_meter();
      floor = measure_floor();
    }
    const double parsed = ns_per_packet(packets, [&] { best.checksum += run_parser(batch, records); });
    if (round < warm) {
      // Intervals of the same length as the one that is measured: a meter keeps room for what the last one took.
      if (round + 1 == warm) {
        static_cast<void>(meter.cut(begin_ns, traffic.now_ns()));
        begin_ns = traffic.now_ns();
        all = 0;
      }
      continue;
    }
    best.floor_ns = std::min(best.floor_ns, floor);
    best.parse_ns = std::min(best.parse_ns, parsed);
    best.meter_ns = std::min(best.meter_ns, metered);
    best.packets += packets;
    ratios.push_back(metered / floor);
  }
  Interval interval;
  best.cut_ns = ns_per_packet(all, [&] { interval = meter.cut(begin_ns, traffic.now_ns()); });
  check(interval, all, request.traffic.flows);
  std::sort(ratios.begin(), ratios.end());
  best.median_ratio = ratios.empty() ? 0 : ratios[ratios.size() / 2];
  return best;
}

}  // namespace pulse::bench
