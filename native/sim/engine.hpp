// SPDX-License-Identifier: Apache-2.0
//
// One simulation: the layers on one event queue.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/library.hpp"

namespace pulse::sim {

// When a simulation ends by itself.
struct EndRule {
  Picoseconds limit_ps = 0;   // whatever happens
  Picoseconds tail_ps = 0;    // so long after all ranks have finished
  Picoseconds watch_ps = -1;  // so long after the fault's onset, whether ranks have finished or not; -1 = no such end
};

class Engine {
 public:
  // Throws std::invalid_argument, naming the item, for a plan whose indices do not fit.
  Engine(Plan plan, const EndRule& rule);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs the events up to `until_ps`, at most `max_events`, or to the end; false = the simulation is over.
  bool advance(Picoseconds until_ps, std::uint64_t max_events);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const Library& library() const noexcept { return library_; }
  [[nodiscard]] Transport& transport() noexcept { return transport_; }
  [[nodiscard]] Network& network() noexcept { return network_; }
  [[nodiscard]] Picoseconds now() const noexcept { return events_.now(); }
  [[nodiscard]] std::uint64_t events() const noexcept { return events_.count(); }

 private:
  void dispatch(const Event& event);
  void note_end();

  Plan plan_;
  EndRule rule_;
  EventQueue events_;
  Transport transport_;
  Network network_;
  Library library_;
  Picoseconds end_ps_;
  bool end_known_ = false;
};

// Throws std::invalid_argument, naming the item, when an index of the plan leads nowhere.
void check(const Plan& plan);

}  // namespace pulse::sim
