// SPDX-License-Identifier: Apache-2.0
#include "pulse/pairing.hpp"

#include <algorithm>

#include "pulse/elapsed.hpp"

namespace pulse {

namespace {

constexpr std::uint32_t kMaxScore = 1U << 30;

constexpr std::int64_t again(std::int64_t ns) { return ns < 0 ? ns : -ns - 1; }
constexpr std::int64_t sending_time(std::int64_t ns) { return ns < 0 ? -(ns + 1) : ns; }

}  // namespace

Pairing::Pairing(std::size_t max_flows) { flows_.reserve(max_flows); }

Pairing::AddressPair Pairing::canonical(const FlowKey& key) noexcept {
  return key.src < key.dst ? AddressPair{key.src, key.dst} : AddressPair{key.dst, key.src};
}

void Pairing::add_flow(std::uint32_t slot, const FlowKey& key) {
  if (flows_.size() <= slot) flows_.resize(slot + 1);
  const AddressPair pair = canonical(key);
  auto [entry, added] = group_of_pair_.try_emplace(pair, 0U);
  if (added && free_groups_.empty()) {
    entry->second = static_cast<std::uint32_t>(groups_.size());
    groups_.emplace_back();
    pair_of_group_.push_back(pair);
  } else if (added) {
    entry->second = free_groups_.back();
    free_groups_.pop_back();
    pair_of_group_[entry->second] = pair;
  }
  FlowState& flow = flows_[slot];
  flow = FlowState{};
  flow.group = entry->second;
  flow.side = key.src == pair.first ? 0 : 1;
  flow.live = true;
  groups_[flow.group].flows[flow.side].push_back(slot);
}

void Pairing::remove_flow(std::uint32_t slot) {
  FlowState& flow = flows_[slot];
  Group& group = groups_[flow.group];
  std::erase(group.flows[flow.side], slot);
  for (const std::uint32_t other : group.flows[flow.side ^ 1]) {
    for (Candidate& candidate : flows_[other].candidates) {
      if (candidate.slot == slot) candidate = Candidate{};
    }
  }
  if (group.flows[0].empty() && group.flows[1].empty()) {
    group_of_pair_.erase(pair_of_group_[flow.group]);
    free_groups_.push_back(flow.group);
  }
  flow.live = false;
  flow.candidates = {};
}

void Pairing::sent(std::uint32_t slot, std::uint32_t psn, std::int64_t ns) {
  FlowState& flow = flows_[slot];
  flow.psn[flow.head] = psn;
  flow.ns[flow.head] = ns;
  flow.head = (flow.head + 1) % kPoints;
  flow.used = std::min<std::uint32_t>(flow.used + 1, kPoints);
}

void Pairing::resent(std::uint32_t slot, std::uint32_t psn) {
  FlowState& flow = flows_[slot];
  for (std::size_t i = 0; i < flow.used; ++i) {
    if (flow.psn[i] == psn) flow.ns[i] = again(flow.ns[i]);
  }
}

void Pairing::restarted(std::uint32_t slot) {
  flows_[slot].used = 0;
  flows_[slot].head = 0;
}

// Index of a PSN sent within the last kMaxAckNs, or kPoints.
std::size_t Pairing::find_point(const FlowState& flow, std::uint32_t psn, std::int64_t now) noexcept {
  for (std::size_t i = 0; i < flow.used; ++i) {
    if (flow.psn[i] == psn && elapsed_ns(sending_time(flow.ns[i]), now) <= kMaxAckNs) return i;
  }
  return kPoints;
}

float Pairing::Standing::confidence() const noexcept {
  return static_cast<float>(best.score) / static_cast<float>(best.score + second + kVote);
}

Pairing::Standing Pairing::standing(const FlowState& flow) noexcept {
  Standing standing;
  for (const Candidate& candidate : flow.candidates) {
    if (candidate.slot == kNoSlot) continue;
    if (candidate.score > standing.best.score) {
      standing.second = standing.best.score;
      standing.best = candidate;
    } else {
      standing.second = std::max(standing.second, candidate.score);
    }
  }
  return standing;
}

std::optional<Pairing::Acknowledged> Pairing::acked(std::uint32_t slot, std::uint32_t psn, std::int64_t ns) {
  constexpr float kSettled = 0.9F;  // nothing more to learn
  constexpr std::uint32_t kMaxMisses = 256;
  FlowState& flow = flows_[slot];
  Standing now = standing(flow);
  if (now.confidence() < kSettled) {
    vote(slot, psn, ns);
    now = standing(flow);
  }
  if (now.confidence() < kMinConfidence) return std::nullopt;
  const FlowState& data = flows_[now.best.slot];
  const std::size_t point = find_point(data, psn, ns);
  if (point == kPoints) {
    // The queue pair may have been made anew, with another partner.
    if (++flow.misses == kMaxMisses) {
      flow.candidates = {};
      flow.misses = 0;
    }
    return std::nullopt;
  }
  flow.misses = 0;
  if (data.ns[point] < 0 || ns < data.ns[point]) return std::nullopt;
  return Acknowledged{now.best.slot, ns - data.ns[point]};
}

void Pairing::vote(std::uint32_t slot, std::uint32_t psn, std::int64_t ns) {
  constexpr std::uint32_t kEager = 4096;  // scans after which only every 16th ACK is tried
  FlowState& flow = flows_[slot];
  ++flow.scans;
  if (flow.scans > kEager && flow.scans % 16 != 0) return;
  const std::vector<std::uint32_t>& opposite = groups_[flow.group].flows[flow.side ^ 1];
  std::array<std::uint32_t, kCandidates> fits;
  std::size_t count = 0;
  const std::size_t scan = std::min(opposite.size(), kMaxScan);
  // A large group is searched piece by piece, another piece for each ACK.
  std::size_t at = opposite.size() > kMaxScan ? (flow.scans * kMaxScan) % opposite.size() : 0;
  for (std::size_t i = 0; i < scan; ++i, at = at + 1 == opposite.size() ? 0 : at + 1) {
    if (find_point(flows_[opposite[at]], psn, ns) == kPoints) continue;
    if (count == fits.size()) return;  // fits too many to say anything
    fits[count++] = opposite[at];
  }
  for (std::size_t i = 0; i < count; ++i) {
    add_vote(flow, fits[i], kVote / static_cast<std::uint32_t>(count));
  }
}

void Pairing::add_vote(FlowState& flow, std::uint32_t candidate, std::uint32_t weight) noexcept {
  Candidate* weakest = flow.candidates.data();
  for (Candidate& known : flow.candidates) {
    if (known.slot == candidate) {
      known.score += weight;
      // Long before 32 bits are full; what counts is how scores compare.
      if (known.score >= kMaxScore) {
        for (Candidate& each : flow.candidates) each.score /= 2;
      }
      return;
    }
    if (known.score < weakest->score) weakest = &known;
  }
  // As in a Misra-Gries summary: a newcomer first has to use up the weakest.
  if (weakest->score <= weight) {
    *weakest = {candidate, weight};
  } else {
    weakest->score -= weight;
  }
}

std::size_t Pairing::memory_bytes() const noexcept {
  std::size_t sum = flows_.size() * sizeof(FlowState) + groups_.size() * sizeof(Group) +
                    pair_of_group_.size() * sizeof(AddressPair) + group_of_pair_.size() * sizeof(AddressPair) * 2;
  for (const Group& group : groups_) {
    for (const auto& side : group.flows) sum += side.capacity() * sizeof(std::uint32_t);
  }
  return sum;
}

std::vector<Pairing::Pair> Pairing::resolve() const {
  struct Claim {
    float confidence;
    std::uint32_t slot;
    std::uint32_t opposite;
  };
  std::vector<Claim> claims;
  for (std::uint32_t slot = 0; slot < flows_.size(); ++slot) {
    if (!flows_[slot].live) continue;
    const Standing now = standing(flows_[slot]);
    if (now.confidence() >= kMinConfidence) claims.push_back({now.confidence(), slot, now.best.slot});
  }
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return a.confidence != b.confidence ? a.confidence > b.confidence : a.slot < b.slot;
  });
  std::vector<Pair> pairs(flows_.size());
  for (const Claim& claim : claims) {
    if (pairs[claim.slot].slot != kNoSlot || pairs[claim.opposite].slot != kNoSlot) continue;
    pairs[claim.slot] = {claim.opposite, claim.confidence};
    pairs[claim.opposite] = {claim.slot, claim.confidence};
  }
  return pairs;
}

}  // namespace pulse
