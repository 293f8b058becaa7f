// SPDX-License-Identifier: Apache-2.0
#include "sim/engine.hpp"

#include <algorithm>
#include <utility>

namespace pulse::sim {

namespace {

Plan checked(Plan plan) {
  check(plan);
  return plan;
}

}  // namespace

Engine::Engine(Plan plan, const EndRule& rule)
    : plan_(checked(std::move(plan))),
      rule_(rule),
      transport_(plan_, events_, library_),
      network_(plan_, events_, transport_),
      library_(plan_, events_, transport_, network_),
      end_ps_(rule.limit_ps) {
  transport_.attach(network_);
  library_.begin();
}

bool Engine::advance(Picoseconds until_ps, std::uint64_t max_events) {
  for (; max_events > 0; --max_events) {
    if (!end_known_) note_end();
    const Picoseconds limit = std::min(until_ps, end_ps_);
    if (events_.empty() || events_.next_time() > limit) {
      events_.stand_at(limit);
      return events_.now() < end_ps_;
    }
    dispatch(events_.pop());
  }
  return true;
}

void Engine::note_end() {
  const Picoseconds onset = library_.onset_ps();
  const bool watched = rule_.watch_ps >= 0 && onset != kNever;
  if (!watched && !library_.all_finished()) return;
  end_known_ = true;
  const Picoseconds end = watched ? onset + rule_.watch_ps : events_.now() + rule_.tail_ps;
  end_ps_ = std::min(end, rule_.limit_ps);
}

void Engine::dispatch(const Event& event) {
  if (event.kind() <= EventKind::foreign_burst) {
    network_.on_event(event);
  } else if (event.kind() <= EventKind::retry_timer) {
    transport_.on_event(event);
  } else {
    library_.on_event(event);
  }
}

}  // namespace pulse::sim
