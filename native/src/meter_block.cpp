// SPDX-License-Identifier: Apache-2.0
//
// Packets in blocks, and the short way of those that go on with an open message.
#include <algorithm>
#include <array>

#include "packet_lane.hpp"
#include "pulse/marker_hash.hpp"
#include "pulse/meter.hpp"

namespace pulse {

namespace {

constexpr std::size_t kAhead = 24;  // packets whose headers are fetched before their turn
constexpr auto kRoce = static_cast<std::uint8_t>(ParseOutcome::roce);
constexpr std::uint8_t kEcnCongestionExperienced = 3;

}  // namespace

// How a packet of a block goes on: as the MIDDLE that it is, or with its whole record.
enum class Meter::Way : std::uint8_t { middle, whole };

struct Meter::Sighting {
  PacketLane lane;
  std::uint32_t index;  // in the block
  std::uint64_t hash;
  std::uint32_t slot;
  Way way;
  bool same_flow;  // as the packet before it in the block
};

// Packets whose headers have been captured; a record is made only of those that need one. Columns are kept as
// pointers: the compiler cannot know that writing to a flow leaves the batch alone.
class Meter::CapturedBlock {
 public:
  CapturedBlock(const PacketBatch& batch, std::size_t first, PacketRecord* records) noexcept
      : batch_(batch),
        first_(first),
        ns_(batch.ns().data() + first),
        wire_bytes_(batch.wire_bytes().data() + first),
        captured_bytes_(batch.captured_bytes().data() + first),
        link_types_(batch.link_types().data() + first),
        offsets_(batch.offsets().data() + first),
        bytes_(batch.bytes().data()),
        until_last_(batch.size() - first),
        records_(records) {}

  [[nodiscard]] std::int64_t ns(std::size_t i) const noexcept { return ns_[i]; }
  [[nodiscard]] std::uint32_t wire_bytes(std::size_t i) const noexcept { return wire_bytes_[i]; }

  [[nodiscard]] bool middle(std::size_t i, PacketLane& lane) const noexcept {
    if (i + kAhead < until_last_) {
      const std::byte* ahead = bytes_ + offsets_[i + kAhead];
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + detail::kEtherTypeAt + detail::kBthEnd - 1);
    }
    return read_lane(bytes_ + offsets_[i], captured_bytes_[i], link_types_[i], lane);
  }

  // Parses the packet.
  [[nodiscard]] const PacketRecord& whole(std::size_t i) noexcept {
    records_[i].ns = ns_[i];
    static_cast<void>(parse_packet(batch_.data(first_ + i), link_types_[i], wire_bytes_[i], records_[i]));
    return records_[i];
  }
  // What has been parsed.
  [[nodiscard]] const PacketRecord& record(std::size_t i) const noexcept { return records_[i]; }

 private:
  const PacketBatch& batch_;
  std::size_t first_;
  const std::int64_t* ns_;
  const std::uint32_t* wire_bytes_;
  const std::uint32_t* captured_bytes_;
  const LinkType* link_types_;
  const std::size_t* offsets_;
  const std::byte* bytes_;
  std::size_t until_last_;
  PacketRecord* records_;
};

// Packets parsed elsewhere.
class Meter::RecordBlock {
 public:
  RecordBlock(const FlowTable& table, std::span<const PacketRecord> records) noexcept
      : table_(table), records_(records) {}

  [[nodiscard]] std::int64_t ns(std::size_t i) const noexcept { return records_[i].ns; }
  [[nodiscard]] std::uint32_t wire_bytes(std::size_t i) const noexcept { return records_[i].wire_bytes; }
  [[nodiscard]] bool middle(std::size_t i, PacketLane& lane) const noexcept {
    const PacketRecord& packet = records_[i];
    if (packet.outcome != kRoce || !detail::kMiddleOpcodes[packet.opcode] || packet.ecn == kEcnCongestionExperienced) {
      return false;
    }
    lane.set_key(table_.shorten(flow_key(packet)));
    lane.psn = packet.psn | (packet.ack_req != 0 ? PacketLane::kAckRequest : 0);
    lane.payload_bytes = packet.payload_bytes;
    return true;
  }
  [[nodiscard]] const PacketRecord& whole(std::size_t i) const noexcept { return records_[i]; }
  [[nodiscard]] const PacketRecord& record(std::size_t i) const noexcept { return records_[i]; }

 private:
  const FlowTable& table_;
  std::span<const PacketRecord> records_;
};

// What a packet of a run reads and writes, or any packet.
[[gnu::always_inline]] inline void Meter::prefetch_flow(std::uint32_t slot, bool whole) const noexcept {
  const auto* flow = reinterpret_cast<const std::byte*>(&hot_[slot]);
  __builtin_prefetch(flow, 1);
  __builtin_prefetch(flow + 64, 1);
  __builtin_prefetch(&gaps_[slot], 1);
  windows_.prefetch(slot);
  if (!whole) return;
  __builtin_prefetch(flow + 128, 1);
  const auto* cold = reinterpret_cast<const std::byte*>(&cold_[slot]);
  for (std::size_t at = 0; at < sizeof(FlowRecord) + sizeof(PsnHistory); at += 64) __builtin_prefetch(cold + at, 1);
}

// What the packets of a run change of their flow, at hand while it lasts.
struct Meter::Run {
  std::uint32_t slot;
  HotFlow& flow;
  std::uint16_t* gap_counts;
  std::int64_t last_ns = flow.last_data_ns;
  std::int64_t longest_gap_ns = flow.longest_gap_ns;
  PsnPosition psn_next = flow.psn_next;
  std::uint64_t wire_bytes = flow.wire_bytes;
  std::uint64_t data_bytes = flow.data_bytes;
  std::uint64_t window_begin_ns;
  std::uint32_t data_packets = flow.data_packets;

  // Whether the packet is the expected MIDDLE of the open message and not back in time; if so, `gap_ns` is the time
  // since the last one.
  [[nodiscard, gnu::always_inline]] bool takes(const Sighting& packet, std::int64_t ns,
                                               std::int64_t& gap_ns) const noexcept {
    return ((packet.lane.psn ^ static_cast<std::uint32_t>(psn_next)) & kPsnMask) == 0 &&
           !__builtin_sub_overflow(ns, last_ns, &gap_ns) && gap_ns >= 0 && packet.way == Way::middle;
  }

  [[gnu::always_inline]] void write_back() const noexcept {
    flow.last_data_ns = last_ns;
    flow.longest_gap_ns = static_cast<std::uint32_t>(longest_gap_ns);
    flow.psn_next = psn_next;
    flow.wire_bytes = wire_bytes;
    flow.data_bytes = data_bytes;
    flow.data_packets = data_packets;
  }
};

// Does for a packet of a run what on_packet() would.
[[gnu::always_inline]] inline void Meter::on_middle(Run& run, const PacketLane& lane, std::int64_t ns,
                                                    std::int64_t gap_ns, std::uint32_t wire_bytes) {
  const unsigned cell = histogram_cell(static_cast<std::uint64_t>(gap_ns));
  if (++run.gap_counts[GapCounts::place(cell)] == 0) [[unlikely]]
    gap_overflows_.push_back({run.slot, cell});
  if (gap_ns > run.longest_gap_ns) {
    if (gap_ns > burst_gap_ns_) {
      run.write_back();
      begin_burst_in_run(run.slot, gap_ns, ns);
      run.longest_gap_ns = 0;
    } else {
      run.longest_gap_ns = gap_ns;
    }
  }
  if (static_cast<std::uint64_t>(ns) - run.window_begin_ns >= config_.window_ns) {
    run.flow.data_packets = run.data_packets;
    run.flow.data_bytes = run.data_bytes;
    close_window(run.slot);
    run.flow.window_index = window_clock_.index(ns);
    run.window_begin_ns = static_cast<std::uint64_t>(run.flow.window_index) * config_.window_ns;
  }
  run.last_ns = ns;
  run.psn_next += 1;
  run.data_packets += 1;
  run.wire_bytes += wire_bytes;
  run.data_bytes += lane.payload_bytes;
  const std::uint32_t psn = lane.psn & kPsnMask;
  if (lane.psn != psn) [[unlikely]]
    pairing_.sent(run.slot, psn, ns);
  if (sees_every_packet_ && is_data_marker(psn, lane.tail)) note_data_marker(run.slot, psn, ns);
}

// Takes packets of one flow from `first` on that go on with its open message: nearly all packets of a busy
// capture do. Returns the index of the first packet not taken.
template <typename Block>
[[gnu::always_inline]] inline std::size_t Meter::take_run(const Block& block, const Sighting* packets,
                                                          std::size_t first, std::size_t end) {
  const std::uint32_t slot = packets[first].slot;
  if (slot == kNoSlot) return first;
  HotFlow& flow = hot_[slot];
  if (!flow.in_run || flow.key.is_wide() || !packets[first].lane.is_of(flow.key)) return first;
  Run run{.slot = slot,
          .flow = flow,
          .gap_counts = gaps_[slot].counts.data(),
          .window_begin_ns = static_cast<std::uint64_t>(flow.window_index) * config_.window_ns};
  std::size_t at = first;
  do {
    const Sighting& packet = packets[at];
    const std::int64_t ns = block.ns(packet.index);
    std::int64_t gap_ns = 0;
    if (!run.takes(packet, ns, gap_ns)) break;
    on_middle(run, packet.lane, ns, gap_ns, block.wire_bytes(packet.index));
    ++at;
  } while (at != end && packets[at].same_flow);
  run.write_back();
  return at;
}

// Three passes, so that the cache misses of different packets overlap: hash and
// fetch the index, find the slots and fetch the flows, update.
template <typename Block>
void Meter::update_block(Block& block, std::size_t count) {
  if (current_.counters.outcomes[kRoce] + count > config_.max_packets) [[unlikely]] {
    current_.counters.packets_lost += count;
    return;
  }
  std::array<Sighting, kBlock> packets;
  const std::size_t roce = look_up(block, count, packets.data());
  for (std::size_t i = 0; i < roce; ++i) {
    Sighting& packet = packets[i];
    // Packets come in trains: most have the flow of the packet before.
    if (packet.same_flow) {
      packet.slot = packets[i - 1].slot;
      continue;
    }
    packet.slot = table_.guess(packet.hash);
    if (packet.slot != kNoSlot) prefetch_flow(packet.slot, packet.way == Way::whole);
  }
  for (std::size_t i = 0; i < roce;) {
    const std::size_t taken = take_run(block, packets.data(), i, roce);
    if (taken != i) {
      i = taken;
      continue;
    }
    // A guess may be wrong, and a packet of this block may have made or removed the flow.
    const Sighting& packet = packets[i++];
    const PacketRecord& record = packet.way == Way::middle ? block.whole(packet.index) : block.record(packet.index);
    std::uint32_t slot = find_flow(packet.lane.key(), packet.hash, record);
    if (slot == kNoSlot && next_flow_ == kNoFlow) {
      // Every number has been used, and none is used twice.
      ++current_.counters.flows_lost;
      ++current_.counters.packets_lost;
      continue;
    }
    if (slot == kNoSlot) slot = create_flow(record, packet.lane.key(), packet.hash);
    on_packet(slot, record);
  }
}

// The first pass; returns how many of the packets are RoCE.
template <typename Block>
[[gnu::always_inline]] inline std::size_t Meter::look_up(Block& block, std::size_t count, Sighting* packets) {
  std::size_t roce = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Sighting& packet = packets[roce];
    packet.way = Way::middle;
    if (!block.middle(i, packet.lane)) {
      const PacketRecord& record = block.whole(i);
      if (record.outcome != kRoce) {
        ++current_.counters.outcomes[std::min<std::size_t>(record.outcome, kParseOutcomes - 1)];
        continue;
      }
      packet.way = Way::whole;
      packet.lane.set_key(table_.shorten(flow_key(record)));
    }
    packet.index = static_cast<std::uint32_t>(i);
    const PacketLane& before = packets[roce - (roce != 0 ? 1 : 0)].lane;
    // Keys with a hash are not compared: equal ones may be of different flows.
    packet.same_flow = roce != 0 &&
                       ((before.addresses ^ packet.lane.addresses) | (before.tail ^ packet.lane.tail)) == 0 &&
                       (packet.lane.tail & ShortKey::kWide) == 0;
    if (packet.same_flow) {
      packet.hash = packets[roce - 1].hash;
    } else {
      packet.hash = table_.hash(packet.lane.key());
      table_.prefetch(packet.hash);
    }
    ++roce;
  }
  current_.counters.outcomes[kRoce] += roce;
  return roce;
}

std::uint32_t Meter::find_flow(const ShortKey& key, std::uint64_t hash, const PacketRecord& packet) const noexcept {
  return table_.find(hash, [&](std::uint32_t slot) {
    return hot_[slot].key == key && (!key.is_wide() || key_of(slot) == flow_key(packet));
  });
}

// The message goes on after a silence that ends the burst.
void Meter::begin_burst_in_run(std::uint32_t slot, std::int64_t gap_ns, std::int64_t ns) {
  HotFlow& flow = hot_[slot];
  flow.end_run();
  flow.message.longest_gap_ns = std::max(flow.message.longest_gap_ns, saturated_ns(gap_ns));
  close_burst(slot);
  flow.burst_first_ns = ns;
  flow.burst_longest_gap_ns = 0;
  flow.in_run = true;
  flow.longest_gap_ns = 0;
  flow.run_packets_before = flow.data_packets;
  flow.run_bytes_before = flow.data_bytes;
}

void Meter::update(std::span<const PacketRecord> packets) {
  for (std::size_t at = 0; at < packets.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, packets.size() - at);
    RecordBlock block(table_, packets.subspan(at, count));
    update_block(block, count);
  }
}

std::size_t Meter::update_batch(const PacketBatch& batch, std::size_t start, std::optional<std::int64_t> until_ns) {
  const auto ns = batch.ns();
  std::size_t at = start;
  for (std::size_t end = at; at < batch.size(); at = end) {
    const std::size_t limit = std::min(batch.size(), at + kBlock);
    while (end < limit && (!until_ns || ns[end] < *until_ns)) ++end;
    if (end == at) break;
    CapturedBlock block(batch, at, parsed_.data());
    update_block(block, end - at);
  }
  return at;
}

}  // namespace pulse
