// SPDX-License-Identifier: Apache-2.0
#include "sim/run_merge.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "sim/random.hpp"

namespace pulse::sim {
namespace {

constexpr Picoseconds kNever = std::numeric_limits<Picoseconds>::min();

bool is_data(Verb verb) noexcept {
  return verb == Verb::write || verb == Verb::write_imm || verb == Verb::send || verb == Verb::fetch_add;
}

// All that tells two runs apart, so that their order does not depend on how they came.
auto identity(const Sighting& sighting) noexcept {
  const PacketRun& run = sighting.run;
  return std::make_tuple(run.end, run.verb, run.index, run.offset, run.ip_id, run.count, run.msn, run.syndrome,
                         sighting.queued_ps, sighting.spacing_ps, run.congestion_mark, run.ack_request, run.address,
                         run.immediate, run.message_bytes, run.message_packets, run.remote_key);
}

}  // namespace

RunMerge::RunMerge(TapMode mode, std::uint32_t sample_shift, std::uint64_t seed, bool copies, std::size_t ends)
    : mode_(mode),
      sample_log_(std::log1p(-std::ldexp(1.0, -static_cast<int>(sample_shift)))),
      seed_(seed),
      lead_ps_(copies ? kMaxCopyLeadPs : 0),
      settled_ps_(kNever),
      copied_ps_(copies ? 2 * ends : 0, kNever) {}

void RunMerge::add(const Sighting& sighting) {
  if (sighting.run.count == 0) {
    return;
  }
  std::uint32_t index = 0;
  if (free_slots_.empty()) {
    index = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[index].sighting = sighting;
  pending_.push_back({sighting.first_ps, index});
}

bool RunMerge::before(const Pending& a, const Pending& b) const noexcept {
  if (a.first_ps != b.first_ps) {
    return a.first_ps < b.first_ps;
  }
  return identity(slots_[a.slot].sighting) < identity(slots_[b.slot].sighting);
}

void RunMerge::settle(Picoseconds complete_ps) {
  const auto later = std::partition(pending_.begin(), pending_.end(),
                                    [complete_ps](const Pending& entry) { return entry.first_ps < complete_ps; });
  // What was given goes before new runs are started, when it is the most of the row.
  if (waiting_from_ * 2 >= waiting_.size()) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(waiting_from_));
    waiting_from_ = 0;
  }
  std::sort(pending_.begin(), later, [this](const Pending& a, const Pending& b) { return before(a, b); });
  for (auto entry = pending_.begin(); entry != later; ++entry) {
    start(entry->slot);
  }
  pending_.erase(pending_.begin(), later);
  const Picoseconds lowest_ps = kNever + lead_ps_;
  settled_ps_ = std::max(settled_ps_, std::max(complete_ps, lowest_ps) - lead_ps_);
}

void RunMerge::start(std::uint32_t index) {
  Slot& slot = slots_[index];
  const Sighting& seen = slot.sighting;
  const PacketRun& run = seen.run;
  slot.start_ps = seen.first_ps;
  if (!copied_ps_.empty()) {
    Picoseconds& copied_ps = copied_ps_[std::size_t{run.end} * 2 + (is_data(run.verb) ? 0 : 1)];
    slot.start_ps = std::max({std::min(seen.queued_ps, seen.first_ps), seen.first_ps - kMaxCopyLeadPs, copied_ps});
    copied_ps = slot.start_ps + (run.count - 1) * seen.spacing_ps;
  }
  if (mode_ == TapMode::sampled) {
    // From the run itself, so that what is drawn does not depend on which other runs came before.
    slot.draws = derive_seed(seed_, (std::uint64_t{run.end} << 8) | static_cast<std::uint64_t>(run.verb),
                             run.index ^ mix64(static_cast<std::uint64_t>(seen.first_ps)));
  }
  slot.packet = selected_from(slot, 0);
  if (slot.packet >= run.count) {
    free_slots_.push_back(index);
    return;
  }
  const Node node{slot.start_ps + slot.packet * seen.spacing_ps, order_++, index};
  if (waiting_.empty() || node > waiting_.back()) {
    waiting_.push_back(node);
  } else {
    heap_.push_back(node);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
}

const RunMerge::Node* RunMerge::earliest() const noexcept {
  if (waiting_from_ == waiting_.size()) {
    return heap_.empty() ? nullptr : &heap_.front();
  }
  const Node& waiting = waiting_[waiting_from_];
  return heap_.empty() || heap_.front() > waiting ? &waiting : &heap_.front();
}

bool RunMerge::next(Item& item) {
  const Node* node = earliest();
  if (node == nullptr || node->ps >= settled_ps_) {
    return false;
  }
  const bool from_heap = !heap_.empty() && node == &heap_.front();
  Slot& slot = slots_[node->slot];
  item = {node->ps, node->slot, slot.packet, false};
  slot.packet = selected_from(slot, slot.packet + 1);
  item.last = slot.packet >= slot.sighting.run.count;
  const Node later{slot.start_ps + slot.packet * slot.sighting.spacing_ps, node->order, node->slot};
  if (!from_heap) {
    ++waiting_from_;
    if (!item.last) {
      heap_.push_back(later);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  } else if (item.last) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  } else {
    heap_.front() = later;
    sift_down();
  }
  return true;
}

// Puts the first node, whose time grew, where it belongs.
void RunMerge::sift_down() noexcept {
  const Node moved = heap_.front();
  std::size_t place = 0;
  while (true) {
    std::size_t child = 2 * place + 1;
    if (child >= heap_.size()) {
      break;
    }
    if (child + 1 < heap_.size() && heap_[child] > heap_[child + 1]) {
      ++child;
    }
    if (!(moved > heap_[child])) {
      break;
    }
    heap_[place] = heap_[child];
    place = child;
  }
  heap_[place] = moved;
}

// The first packet from `packet` on that the tap takes; the run's count or more if there is none.
std::uint32_t RunMerge::selected_from(Slot& slot, std::uint32_t packet) const noexcept {
  const PacketRun& run = slot.sighting.run;
  if (mode_ == TapMode::sampled) {
    return sampled_from(slot, packet);
  }
  if (mode_ == TapMode::all || !is_data(run.verb)) {
    return packet;
  }
  if (run.offset + packet == 0) {
    return 0;
  }
  return std::max(packet, run.message_packets - 1 - std::min(run.offset, run.message_packets - 1));
}

// Draws how many packets are passed over, not each of them.
std::uint32_t RunMerge::sampled_from(Slot& slot, std::uint32_t packet) const noexcept {
  slot.draws += 0x9e3779b97f4a7c15U;
  const double uniform = static_cast<double>(mix64(slot.draws) >> 11) * 0x1p-53;
  const double skipped = std::floor(std::log1p(-uniform) / sample_log_);
  const std::uint32_t count = slot.sighting.run.count;
  return skipped < static_cast<double>(count) ? packet + static_cast<std::uint32_t>(skipped) : count;
}

}  // namespace pulse::sim
