// SPDX-License-Identifier: Apache-2.0
//
// The packet path for profilers: pulse_bench [flows [train [mtu [steered [repetitions [window_ns [batch]]]]]]]
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "packet_path.hpp"

int main(int argc, char** argv) {
  const auto number = [&](int at, unsigned fallback) {
    return argc > at ? static_cast<unsigned>(std::strtoul(argv[at], nullptr, 10)) : fallback;
  };
  pulse::bench::PathRequest request;
  request.traffic.flows = number(1, 2000);
  request.traffic.train_packets = number(2, 1);
  request.traffic.mtu = number(3, 4096);
  request.traffic.steered = number(4, 0) != 0;
  request.repetitions = number(5, 101);
  request.window_ns = number(6, 8000);
  request.batch_packets = number(7, 32768);
  try {
    const auto result = pulse::bench::measure_path(request);
    std::printf("floor %.2f  parse %.2f  meter %.2f  cut %.2f ns/packet, ratio %.2f (median of runs %.2f)\n",
                result.floor_ns, result.parse_ns, result.meter_ns, result.cut_ns, result.meter_ns / result.floor_ns,
                result.median_ratio);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pulse_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
