// SPDX-License-Identifier: Apache-2.0
//
// From the addresses of a packet to the slot of its flow: open addressing with
// linear probing over a fixed, at most half full index, so finding never
// allocates and removing leaves no tombstones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pulse/records.hpp"

namespace pulse {

inline constexpr std::uint32_t kNoSlot = 0xffffffffU;

struct FlowKey {
  Address src;
  Address dst;
  std::uint32_t dest_qpn;

  // Five loads and no branch, where a call of memcmp() would be the dearest part of a lookup.
  [[nodiscard]] bool operator==(const FlowKey& other) const noexcept {
    std::uint64_t a[4];
    std::uint64_t b[4];
    std::memcpy(a, this, sizeof(a));
    std::memcpy(b, &other, sizeof(b));
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (dest_qpn ^ other.dest_qpn)) == 0;
  }
};
static_assert(sizeof(FlowKey) == 36 && std::has_unique_object_representations_v<FlowKey>);

[[nodiscard]] inline FlowKey flow_key(const PacketRecord& packet) noexcept {
  return {packet.src, packet.dst, packet.dest_qpn};
}

class FlowTable {
 public:
  // The seed of the hash is drawn at random: no traffic can be made to collide on purpose.
  explicit FlowTable(std::size_t max_flows);

  [[nodiscard]] std::uint64_t hash(const FlowKey& key) const noexcept {
    std::uint64_t words[4];
    std::memcpy(words, &key, sizeof(words));
    const std::uint64_t source = fold(words[0] ^ seed_[0], words[1] ^ seed_[1]);
    const std::uint64_t both = fold(words[2] ^ seed_[2] ^ source, words[3] ^ seed_[3]);
    return fold(both ^ key.dest_qpn, seed_[4]);
  }

  void prefetch(std::uint64_t hash) const noexcept { __builtin_prefetch(&index_[hash & mask_]); }

  // Slot of the flow, or kNoSlot.
  [[nodiscard]] std::uint32_t find(const FlowKey& key, std::uint64_t hash) const noexcept {
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Entry& entry = index_[at];
      if (entry.slot == kNoSlot) return kNoSlot;
      if (entry.tag == tag && keys_[entry.slot] == key) return entry.slot;
    }
  }

  // Gives a flow that is not in the table a slot; the table must not be full.
  std::uint32_t insert(const FlowKey& key, std::uint64_t hash);
  void erase(std::uint32_t slot);

  [[nodiscard]] const FlowKey& key(std::uint32_t slot) const noexcept { return keys_[slot]; }
  [[nodiscard]] std::size_t size() const noexcept { return keys_.size() - free_.size(); }
  [[nodiscard]] bool full() const noexcept { return free_.empty() && keys_.size() == max_flows_; }

 private:
  struct Entry {
    std::uint32_t tag;
    std::uint32_t slot;
  };

  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::size_t max_flows_;
  std::size_t mask_;
  std::uint64_t seed_[5] = {};
  std::vector<Entry> index_;
  std::vector<FlowKey> keys_;
  std::vector<std::uint32_t> free_;
};

}  // namespace pulse
