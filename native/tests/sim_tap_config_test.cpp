// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "sim/tap.hpp"
#include "sim_world.hpp"

namespace {

using pulse::PacketBatch;
using pulse::sim::PacketRun;
using pulse::sim::Sighting;
using pulse::sim::Tap;
using pulse::sim::TapConfig;
using pulse::sim::Verb;
using pulse::test::data_run;
using pulse::test::kEnds;
using pulse::test::kNics;

TapConfig config_of() {
  TapConfig config;
  config.clock = {{0, 0}};
  return config;
}

template <typename T>
bool refused(T TapConfig::* field, T value, const std::string& name) {
  TapConfig config = config_of();
  config.*field = value;
  try {
    const Tap tap(config, {}, kNics, kEnds);
  } catch (const std::invalid_argument& error) {
    return std::string(error.what()).starts_with(name + ":");
  }
  return false;
}

TEST("a bad configuration is refused by the name of its field") {
  CHECK(refused(&TapConfig::sample_shift, 32U, "sample_shift"));
  CHECK(refused(&TapConfig::copy_delay_ns, -1.0, "copy_delay_ns"));
  CHECK(refused(&TapConfig::copy_jitter_ns, std::nan(""), "copy_jitter_ns"));
  CHECK(refused(&TapConfig::stamp_noise_ns, std::numeric_limits<double>::infinity(), "stamp_noise_ns"));
  CHECK(refused(&TapConfig::poll_interval_ns, -1.0, "poll_interval_ns"));
  CHECK(refused(&TapConfig::loss_probability, 1.1, "loss_probability"));
  CHECK(refused(&TapConfig::mean_loss_packets, 0.5, "mean_loss_packets"));
  CHECK(refused(&TapConfig::snap_bytes, 4U, "snap_bytes"));
  CHECK(refused(&TapConfig::clock, {}, "clock"));
}

TEST("ends and sightings that name what does not exist are refused") {
  const auto throws = [](auto&& call) {
    try {
      call();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  CHECK(throws([] {
    const std::vector<pulse::sim::EndAddress> beyond = {{0, 2, 1, 0, 0, 1}};
    const Tap tap(config_of(), {}, kNics, beyond);
  }));
  CHECK(throws([] {
    PacketRun run = data_run(Verb::write, 1, 1);
    run.end = 2;
    PacketBatch batch;
    const Sighting seen{run, 0, 0, 0, true};
    Tap(config_of(), {}, kNics, kEnds).expand({&seen, 1}, 0, batch);
  }));
}

}  // namespace
