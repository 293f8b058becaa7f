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

  [[nodiscard]] bool operator==(const FlowKey&) const noexcept = default;
};
static_assert(sizeof(FlowKey) == 36 && std::has_unique_object_representations_v<FlowKey>);

[[nodiscard]] inline FlowKey flow_key(const PacketRecord& packet) noexcept {
  return {packet.src, packet.dst, packet.dest_qpn};
}

// A flow key in twelve bytes: two IPv4 addresses as they stand in the header, or a hash of two others. Two
// keys with IPv4 addresses are equal when their short forms are; of others only the whole keys tell.
struct ShortKey {
  static constexpr std::uint32_t kWide = 1U << 24;

  std::uint32_t words[2] = {};       // the two addresses, or the hash
  std::uint32_t tail = 0xffffffffU;  // queue pair, and kWide where there is a hash; this of no packet

  [[nodiscard]] static ShortKey of(std::uint64_t addresses, std::uint32_t tail) noexcept {
    ShortKey key;
    std::memcpy(key.words, &addresses, sizeof(addresses));
    key.tail = tail;
    return key;
  }
  [[nodiscard]] std::uint64_t addresses() const noexcept {
    std::uint64_t both;
    std::memcpy(&both, words, sizeof(both));
    return both;
  }
  [[nodiscard]] bool is_wide() const noexcept { return (tail & kWide) != 0; }
  [[nodiscard]] bool operator==(const ShortKey& other) const noexcept {
    return ((addresses() ^ other.addresses()) | (tail ^ other.tail)) == 0;
  }
};
static_assert(sizeof(ShortKey) == 12);

class FlowTable {
 public:
  // The seed of the hash is drawn at random: no traffic can be made to collide on purpose.
  explicit FlowTable(std::size_t max_flows);

  [[nodiscard]] ShortKey shorten(const FlowKey& key) const noexcept {
    constexpr std::uint64_t kMapped = 0xffff0000U;  // ::ffff:0:0/96, bytes 8 to 11, as they load
    std::uint64_t words[4];
    std::memcpy(words, &key, sizeof(words));
    const bool narrow = (words[0] | words[2]) == 0 && static_cast<std::uint32_t>(words[1]) == kMapped &&
                        static_cast<std::uint32_t>(words[3]) == kMapped;
    if (narrow) return ShortKey::of(words[1] >> 32U | (words[3] >> 32U << 32U), key.dest_qpn);
    const std::uint64_t source = fold(words[0] ^ seed_[2], words[1] ^ seed_[3]);
    const std::uint64_t target = fold(words[2] ^ seed_[4], words[3] ^ seed_[5]);
    return ShortKey::of(fold(source, target ^ seed_[2]), key.dest_qpn | ShortKey::kWide);
  }

  [[nodiscard]] std::uint64_t hash(const ShortKey& key) const noexcept {
    return fold(key.addresses() ^ seed_[0], key.tail ^ seed_[1]);
  }

  void prefetch(std::uint64_t hash) const noexcept { __builtin_prefetch(&index_[hash & mask_]); }

  // Slot of the flow, or kNoSlot. Keys are kept by the caller, with the data that a packet needs anyway:
  // `is_flow` tells whether a slot is that of the flow looked for.
  template <typename IsFlow>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, const IsFlow& is_flow) const noexcept {
    for (std::size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Entry& entry = index_[at];
      if (entry.slot == kNoSlot) return kNoSlot;
      if (entry.tag == static_cast<std::uint32_t>(hash) && is_flow(entry.slot)) return entry.slot;
    }
  }

  // The first slot whose hash looks like this one's, or kNoSlot: good for fetching it ahead, no more.
  [[nodiscard]] std::uint32_t guess(std::uint64_t hash) const noexcept {
    return find(hash, [](std::uint32_t) { return true; });
  }

  // Gives a flow that is not in the table a slot; the table must not be full.
  std::uint32_t insert(std::uint64_t hash);
  void erase(std::uint32_t slot, std::uint64_t hash);

  [[nodiscard]] std::size_t size() const noexcept { return slots_ - free_.size(); }
  [[nodiscard]] bool full() const noexcept { return free_.empty() && slots_ == max_flows_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return index_.capacity() * sizeof(Entry) + free_.capacity() * sizeof(std::uint32_t);
  }

 private:
  struct Entry {
    std::uint32_t tag;  // low half of the hash, which holds the place where the search begins
    std::uint32_t slot;
  };

  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::size_t max_flows_;
  std::size_t mask_;
  std::uint64_t seed_[6] = {};
  std::vector<Entry> index_;
  std::size_t slots_ = 0;  // given out so far
  std::vector<std::uint32_t> free_;
};

}  // namespace pulse
