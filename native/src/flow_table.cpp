// SPDX-License-Identifier: Apache-2.0
#include "pulse/flow_table.hpp"

#include <bit>
#include <random>

namespace pulse {

FlowTable::FlowTable(std::size_t max_flows)
    : max_flows_(max_flows), mask_(std::bit_ceil(2 * max_flows) - 1), index_(mask_ + 1, {0, kNoSlot}) {
  std::random_device random;
  for (std::uint64_t& word : seed_) word = static_cast<std::uint64_t>(random()) << 32 | random();
}

std::uint32_t FlowTable::insert(std::uint64_t hash) {
  std::uint32_t slot;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(slots_++);
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  std::size_t at = hash & mask_;
  while (index_[at].slot != kNoSlot) at = (at + 1) & mask_;
  index_[at] = {static_cast<std::uint32_t>(hash), slot};
  return slot;
}

void FlowTable::erase(std::uint32_t slot, std::uint64_t hash) {
  std::size_t hole = hash & mask_;
  while (index_[hole].slot != slot) hole = (hole + 1) & mask_;
  // Move later entries of the probe chain back, so that no search stops at the hole.
  for (std::size_t at = (hole + 1) & mask_; index_[at].slot != kNoSlot; at = (at + 1) & mask_) {
    const std::size_t home = index_[at].tag & mask_;
    if (((at - home) & mask_) >= ((at - hole) & mask_)) {
      index_[hole] = index_[at];
      hole = at;
    }
  }
  index_[hole].slot = kNoSlot;
  free_.push_back(slot);
}

}  // namespace pulse
