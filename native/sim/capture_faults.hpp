// SPDX-License-Identifier: Apache-2.0
//
// What a capture does to packets besides taking them: losing some, and, where
// software stamps them, letting them wait.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/packet_run.hpp"
#include "sim/random.hpp"
#include "sim/tap.hpp"

namespace pulse::sim {

// Losses in bursts of geometric length.
class LossBursts {
 public:
  LossBursts(double probability, double mean_packets, std::uint64_t seed)
      : probability_(probability), burst_end_(1 / mean_packets), random_(seed), kept_(failures_before(probability)) {}

  // Whether the next packet is lost.
  bool lose() noexcept {
    if (probability_ == 0) {
      return false;
    }
    if (lost_ == 0) {
      if (kept_ > 0) {
        --kept_;
        return false;
      }
      kept_ = failures_before(probability_);
      lost_ = 1 + failures_before(burst_end_);
    }
    --lost_;
    return true;
  }

 private:
  std::uint64_t failures_before(double success) noexcept {
    constexpr double kMost = 1e18;
    return success > 0 ? static_cast<std::uint64_t>(
                             std::min(kMost, std::floor(std::log1p(-random_.uniform()) / std::log1p(-success))))
                       : 0;
  }

  double probability_;
  double burst_end_;
  Random random_;
  std::uint64_t kept_;
  std::uint64_t lost_ = 0;
};

// A receive loop that polls at fixed intervals and stamps what it finds, packet after packet.
class ReceiveLoop {
 public:
  ReceiveLoop(double poll_interval_ns, std::uint64_t seed)
      : interval_ps_(std::max<Picoseconds>(1, static_cast<Picoseconds>(poll_interval_ns * 1000))),
        random_(seed),
        phase_ps_(static_cast<Picoseconds>(random_.uniform() * static_cast<double>(interval_ps_))) {}

  // Times in growing order. Sets `stamp_ps`, or returns false when the ring is full.
  [[nodiscard]] bool accept(Picoseconds arrived_ps, Picoseconds& stamp_ps) {
    if (ring_.size() < kReceiveRingPackets) {
      ring_.push_back(arrived_ps);
    } else if (ring_[next_] > arrived_ps) {
      return false;
    }
    const Picoseconds elapsed_ps = arrived_ps - phase_ps_;
    const Picoseconds intervals = elapsed_ps / interval_ps_ + (elapsed_ps % interval_ps_ > 0 ? 1 : 0);
    stamp_ps = phase_ps_ + intervals * interval_ps_;
    if (stamped_) {
      stamp_ps = std::max(stamp_ps, last_ps_ + kMinPacketPs + random_.below(kPacketRangePs));
    }
    stamped_ = true;
    last_ps_ = stamp_ps;
    ring_[next_] = stamp_ps;
    next_ = (next_ + 1) % kReceiveRingPackets;
    return true;
  }

 private:
  // A kernel takes a few hundred ns for a packet.
  static constexpr Picoseconds kMinPacketPs = 200'000;
  static constexpr std::uint32_t kPacketRangePs = 200'001;

  Picoseconds interval_ps_;
  Random random_;
  Picoseconds phase_ps_;
  Picoseconds last_ps_ = 0;
  std::vector<Picoseconds> ring_;  // stamps of the last packets
  std::size_t next_ = 0;
  bool stamped_ = false;
};

}  // namespace pulse::sim
