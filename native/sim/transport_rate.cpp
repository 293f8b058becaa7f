// SPDX-License-Identifier: Apache-2.0
//
// DCQCN's reaction point (Zhu et al., SIGCOMM 2015, section 3.3 and figure 7). Timers are not events:
// what they would have done is made up for whenever the rate is asked for.
#include <algorithm>
#include <cmath>

#include "sim/transport.hpp"

namespace pulse::sim {

namespace {

constexpr double kFullRate = 0.999;

}  // namespace

void Transport::cut_rate(Rate& rate) const {
  recover_rate(rate);
  const double gain = plan_.transport.alpha_gain;
  rate.reduced = true;
  rate.target = rate.current;
  rate.current = std::max(plan_.transport.lowest_share, rate.current * (1 - rate.alpha / 2));
  rate.alpha = (1 - gain) * rate.alpha + gain;
  rate.alpha_since_ps = rate.increase_since_ps = events_.now();
  rate.bytes = 0;
  rate.timer_rounds = rate.byte_rounds = 0;
}

// Brings a rate up to date.
void Transport::recover_rate(Rate& rate) const {
  if (!rate.reduced) return;
  const TransportPlan& transport = plan_.transport;
  const Picoseconds now = events_.now();
  const Picoseconds alpha_rounds = (now - rate.alpha_since_ps) / transport.alpha_timer_ps;
  if (alpha_rounds > 0) {
    rate.alpha *= std::pow(1 - transport.alpha_gain, static_cast<double>(alpha_rounds));
    rate.alpha_since_ps += alpha_rounds * transport.alpha_timer_ps;
  }
  while (rate.reduced && now - rate.increase_since_ps >= transport.increase_timer_ps) {
    rate.increase_since_ps += transport.increase_timer_ps;
    ++rate.timer_rounds;
    increase_rate(rate);
  }
}

void Transport::increase_rate(Rate& rate) const {
  const TransportPlan& transport = plan_.transport;
  const std::uint32_t recovery = transport.fast_recovery_rounds;
  if (std::min(rate.timer_rounds, rate.byte_rounds) > recovery) {
    rate.target += transport.hyper_share;
  } else if (std::max(rate.timer_rounds, rate.byte_rounds) > recovery) {
    rate.target += transport.additive_share;
  }
  rate.target = std::min(1.0, rate.target);
  rate.current = (rate.target + rate.current) / 2;
  if (rate.current >= kFullRate) {
    rate = Rate{};  // the next notification finds a fresh state, as in hardware
  }
}

// Says when the next segment may go, after one of `bytes`.
void Transport::pace(End& end, std::uint32_t number, std::uint32_t bytes) const {
  Rate& rate = end.rate;
  if (!rate.reduced) return;
  recover_rate(rate);
  rate.bytes += bytes;
  if (plan_.transport.increase_bytes > 0 && rate.bytes >= plan_.transport.increase_bytes && rate.reduced) {
    rate.bytes -= plan_.transport.increase_bytes;
    ++rate.byte_rounds;
    increase_rate(rate);
  }
  if (!rate.reduced) return;
  const double ps_per_byte = network_->nic_ps_per_byte(plan_.ends[number].nic);
  end.eligible_ps = events_.now() + static_cast<Picoseconds>(bytes * ps_per_byte / rate.current);
}

double Transport::rate_share(std::uint32_t end) {
  recover_rate(ends_[end].rate);
  return ends_[end].rate.current;
}

}  // namespace pulse::sim
