// SPDX-License-Identifier: Apache-2.0
//
// Which two flows are the two directions of one connection. Packets carry only
// the destination queue pair, but an ACK names a PSN of the opposite flow: each
// ACK votes for the opposite flows that sent exactly this PSN a short time ago
// as the end of a message or with a request to acknowledge. An ACK that fits
// several flows (stacks that begin every queue pair at PSN 0) splits its vote.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "pulse/flow_table.hpp"

namespace pulse {

class Pairing {
 public:
  // Below this confidence a pair stays unknown: it takes three undisputed votes.
  static constexpr float kMinConfidence = 0.7F;

  explicit Pairing(std::size_t max_flows);

  void add_flow(std::uint32_t slot, const FlowKey& key);
  void remove_flow(std::uint32_t slot);

  // The flow sent a PSN that an ACK is likely to name.
  void sent(std::uint32_t slot, std::uint32_t psn, std::int64_t ns);
  // ...and sent it again: its ACK tells no latency any more.
  void resent(std::uint32_t slot, std::uint32_t psn);
  // The flow began a new life: PSNs sent before mean nothing.
  void restarted(std::uint32_t slot);

  struct Acknowledged {
    std::uint32_t data_slot;
    std::int64_t latency_ns;
  };
  // The flow in `slot` acknowledged a PSN for the first time. Returns which data that was, when its pair is known.
  std::optional<Acknowledged> acked(std::uint32_t slot, std::uint32_t psn, std::int64_t ns);

  struct Pair {
    std::uint32_t slot = kNoSlot;
    float confidence = 0;
  };
  // One-to-one pairs of all flows, strongest first; result is indexed by slot.
  [[nodiscard]] std::vector<Pair> resolve() const;

  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  static constexpr std::size_t kPoints = 32;
  static constexpr std::size_t kCandidates = 4;
  static constexpr std::size_t kMaxScan = 256;
  static constexpr std::uint32_t kVote = 12;  // divisible by the number of flows that may share it
  static constexpr std::int64_t kMaxAckNs = 1'000'000'000;

  struct Candidate {
    std::uint32_t slot = kNoSlot;
    std::uint32_t score = 0;
  };
  struct FlowState {
    std::array<std::uint32_t, kPoints> psn;  // ring of PSNs sent
    std::array<std::int64_t, kPoints> ns;    // of their sending; negated minus one when sent again
    std::array<Candidate, kCandidates> candidates;
    std::uint32_t used = 0;
    std::uint32_t head = 0;
    std::uint32_t group = 0;
    std::uint32_t side = 0;
    std::uint32_t scans = 0;
    std::uint32_t misses = 0;
    bool live = false;
  };
  // Flows of one unordered pair of addresses, by direction.
  struct Group {
    std::array<std::vector<std::uint32_t>, 2> flows;
  };
  using AddressPair = std::pair<Address, Address>;
  struct Standing {
    Candidate best;
    std::uint32_t second = 0;
    [[nodiscard]] float confidence() const noexcept;
  };

  static AddressPair canonical(const FlowKey& key) noexcept;
  static Standing standing(const FlowState& flow) noexcept;
  static std::size_t find_point(const FlowState& flow, std::uint32_t psn, std::int64_t now) noexcept;
  void vote(std::uint32_t slot, std::uint32_t psn, std::int64_t ns);
  static void add_vote(FlowState& flow, std::uint32_t candidate, std::uint32_t weight) noexcept;

  std::vector<FlowState> flows_;
  std::vector<AddressPair> pair_of_group_;
  std::vector<Group> groups_;
  std::vector<std::uint32_t> free_groups_;
  std::map<AddressPair, std::uint32_t> group_of_pair_;  // touched only when flows come and go
};

}  // namespace pulse
