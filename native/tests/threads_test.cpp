// SPDX-License-Identifier: Apache-2.0
//
// One meter per thread, as many NICs of one process have: they share nothing, and each says what it would alone.
// Under ThreadSanitizer (make test-tsan) this also shows that nothing is shared unseen.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "check.hpp"
#include "pulse/meter.hpp"
#include "traffic.hpp"

namespace {

constexpr std::size_t kPackets = 20'000;

std::vector<std::uint8_t> measure(std::uint64_t seed) {
  pulse::bench::TrafficConfig config;
  config.flows = 64;
  config.train_packets = 4;
  config.seed = seed;
  pulse::bench::Traffic traffic(config);
  pulse::PacketBatch batch;
  std::vector<std::uint32_t> flows;
  pulse::Meter meter(pulse::MeterConfig{});
  std::vector<std::uint8_t> result;
  for (int round = 0; round < 4; ++round) {
    traffic.fill(batch, kPackets / 4, flows);
    static_cast<void>(meter.update_batch(batch, 0, std::nullopt));
    const pulse::Interval interval = meter.cut(round, round + 1);
    const auto append = [&](const auto& records) {
      const auto bytes = std::as_bytes(std::span(records));
      for (const std::byte byte : bytes) result.push_back(std::to_integer<std::uint8_t>(byte));
    };
    append(interval.flows);
    append(interval.messages);
    append(interval.markers);
    append(interval.histograms);
    append(interval.series);
  }
  return result;
}

TEST("meters in threads of their own say what each says alone") {
  for (const std::size_t count : {1U, 4U, 7U}) {
    std::vector<std::vector<std::uint8_t>> together(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&together, i] { together[i] = measure(i + 1); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < count; ++i) CHECK(together[i] == measure(i + 1));
  }
}

}  // namespace
