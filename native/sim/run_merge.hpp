// SPDX-License-Identifier: Apache-2.0
//
// The packets of the runs that one tap saw in one direction, in order of time,
// without a list of them: runs of several connections interleave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/packet_run.hpp"
#include "sim/tap.hpp"

namespace pulse::sim {

class RunMerge {
 public:
  // One packet. Its run stays until release().
  struct Item {
    Picoseconds ps = 0;
    std::uint32_t slot = 0;
    std::uint32_t packet = 0;  // of the run
    bool last = false;         // no later packet of the run comes
  };

  // With `copies`, times are those at which sent packets are copied, else those at which they pass.
  RunMerge(TapMode mode, std::uint32_t sample_shift, std::uint64_t seed, bool copies, std::size_t ends);

  void add(const Sighting& sighting);

  // No sighting that is added later has its first_ps before `complete_ps`.
  void settle(Picoseconds complete_ps);

  // The next packet, if none that comes before it can still be added.
  [[nodiscard]] bool next(Item& item);

  // Packets that next() has not given yet come at this time or later.
  [[nodiscard]] Picoseconds settled_ps() const noexcept { return settled_ps_; }

  [[nodiscard]] const PacketRun& run(const Item& item) const noexcept { return slots_[item.slot].sighting.run; }

  // To be called once for each item, after its use.
  void release(const Item& item) {
    if (item.last) {
      free_slots_.push_back(item.slot);
    }
  }

 private:
  struct Slot {
    Sighting sighting;
    Picoseconds start_ps = 0;  // time of the run's first packet
    std::uint64_t draws = 0;   // state of the sampling draw
    std::uint32_t packet = 0;  // next to give
  };

  struct Pending {
    Picoseconds first_ps;
    std::uint32_t slot;
  };

  struct Node {
    Picoseconds ps;
    std::uint64_t order;  // breaks ties
    std::uint32_t slot;

    bool operator>(const Node& other) const noexcept { return ps != other.ps ? ps > other.ps : order > other.order; }
  };

  [[nodiscard]] bool before(const Pending& a, const Pending& b) const noexcept;
  void start(std::uint32_t index);
  [[nodiscard]] std::uint32_t selected_from(Slot& slot, std::uint32_t packet) const noexcept;
  [[nodiscard]] std::uint32_t sampled_from(Slot& slot, std::uint32_t packet) const noexcept;
  [[nodiscard]] const Node* earliest() const noexcept;
  void sift_down() noexcept;

  TapMode mode_;
  double sample_log_;  // log(1 - sampling probability)
  std::uint64_t seed_;
  Picoseconds lead_ps_;  // how much earlier than its sighting a packet's time may be
  Picoseconds settled_ps_;
  std::uint64_t order_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<Pending> pending_;
  // Runs are started nearly in the order of their times: those that fit at the end wait in a row, and only those whose
  // packets interleave cost a heap.
  std::vector<Node> waiting_;  // in order, from `waiting_from_` on
  std::size_t waiting_from_ = 0;
  std::vector<Node> heap_;              // smallest first
  std::vector<Picoseconds> copied_ps_;  // by end and kind: the last copy, so that copies keep their order
};

}  // namespace pulse::sim
