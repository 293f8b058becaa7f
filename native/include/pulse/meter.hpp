// SPDX-License-Identifier: Apache-2.0
//
// The measure stage: packets in, records per interval out. State that outlives a
// cut (open messages, PSN spaces, flow numbers, pairs) stays in the meter, so
// intervals join to what one long interval would have held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "pulse/flow_state.hpp"
#include "pulse/flow_table.hpp"
#include "pulse/interval.hpp"
#include "pulse/packet_batch.hpp"
#include "pulse/pairing.hpp"
#include "pulse/records.hpp"
#include "pulse/window_clock.hpp"
#include "pulse/window_store.hpp"

namespace pulse {

struct PacketLane;

struct MeterConfig {
  std::uint64_t window_ns = 8'000;
  std::int64_t burst_gap_ns = 50'000;  // below 2^32
  std::uint32_t max_flows = 16'384;
  std::int64_t idle_ns = 600'000'000'000;  // a flow silent for longer leaves the table at the next cut
  // Only FIRST, LAST and ONLY data, ACK, NAK, CNP and control writes arrive. PSN jumps are
  // normal then; data_bytes counts a message's announced length when it ends; windows, bursts
  // and gaps hold only what arrived (readers interpolate between a message's start and end).
  bool steered = false;
  // One packet in 2^sample_shift arrives; counts are of these, not scaled up. PSN jumps are normal.
  std::uint32_t sample_shift = 0;
  std::size_t window_budget_bytes = 5U << 20;
  std::size_t max_records = 1U << 20;           // of each kind per interval
  std::size_t record_budget_bytes = 32U << 20;  // of all kinds together
  // Of these an interval may hold fewer: over the bound the burst gap is doubled for the interval, and data
  // markers are thinned to every second of their hashes, so that both ends still keep the same ones.
  std::size_t max_bursts = 1U << 16;
  std::size_t max_data_markers = 1U << 17;
  // Of an interval. No count of 32 bits can begin anew below; beyond it packets are only counted, as packets_lost.
  std::uint64_t max_packets = 0xffff'0000;
  std::uint32_t first_flow = 0;  // number of the first flow that is made
};

class Meter {
 public:
  // Throws std::invalid_argument, naming the field, when the configuration cannot be met.
  explicit Meter(const MeterConfig& config);

  // Packets with an outcome other than roce are counted, nothing else.
  void update(std::span<const PacketRecord> packets);

  // Parses and takes packets of a batch from `start` on, up to the first at or after `until_ns`.
  // Returns the index of the first packet not taken.
  std::size_t update_batch(const PacketBatch& batch, std::size_t start, std::optional<std::int64_t> until_ns);

  // Ends the interval. The caller chooses the times; they matter only for windows and ageing.
  [[nodiscard]] Interval cut(std::int64_t begin_ns, std::int64_t end_ns);

  // Like cut(), and hands out messages that have not ended.
  [[nodiscard]] Interval finish(std::int64_t begin_ns, std::int64_t end_ns);

  [[nodiscard]] const MeterConfig& config() const noexcept { return config_; }
  [[nodiscard]] std::size_t flow_count() const noexcept { return table_.size(); }

  // Memory that has been taken, with the interval that is being filled.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  static constexpr std::size_t kBlock = 64;  // packets whose flows are fetched into the cache together

  // meter_block.cpp: packets in blocks, and those that go on with a message
  class CapturedBlock;
  class RecordBlock;
  enum class Way : std::uint8_t;
  struct Sighting;
  template <typename Block>
  void update_block(Block& block, std::size_t count);
  template <typename Block>
  std::size_t look_up(Block& block, std::size_t count, Sighting* packets);
  [[nodiscard]] std::uint32_t find_flow(const ShortKey& key, std::uint64_t hash,
                                        const PacketRecord& packet) const noexcept;
  void prefetch_flow(std::uint32_t slot, bool whole) const noexcept;
  struct Run;
  void on_middle(Run& run, const PacketLane& lane, std::int64_t ns, std::int64_t gap_ns, std::uint32_t wire_bytes);
  template <typename Block>
  std::size_t take_run(const Block& block, const Sighting* packets, std::size_t first, std::size_t end);
  void begin_burst_in_run(std::uint32_t slot, std::int64_t gap_ns, std::int64_t ns);
  void count_gap(std::uint32_t slot, std::int64_t gap_ns) {
    const unsigned cell = histogram_cell(static_cast<std::uint64_t>(gap_ns));
    if (gaps_[slot].add(cell)) [[unlikely]]
      gap_overflows_.push_back({slot, cell});
  }

  // meter.cpp: all other packets
  void on_packet(std::uint32_t slot, const PacketRecord& packet);
  void dispatch(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns);
  void on_request(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns);
  void on_boundary(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting);
  void on_datagram(std::uint32_t slot, const PacketRecord& packet);
  void on_response(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns);
  void on_acknowledge(std::uint32_t slot, const PacketRecord& packet);
  void on_nak(std::uint32_t slot, const PacketRecord& packet);
  void acknowledge_up_to(std::uint32_t slot, std::uint32_t psn, std::int64_t ns, bool names_packet);
  void count_data(std::uint32_t slot, const PacketRecord& packet);
  void enter_window(std::uint32_t slot, std::int64_t ns) {
    HotFlow& flow = hot_[slot];
    const std::uint64_t begin_ns = static_cast<std::uint64_t>(flow.window_index) * config_.window_ns;
    if (static_cast<std::uint64_t>(ns) - begin_ns < config_.window_ns) return;
    close_window(slot);
    flow.window_index = window_clock_.index(ns);
  }
  void close_window(std::uint32_t slot) {
    HotFlow& flow = hot_[slot];
    const std::uint32_t packets = flow.data_packets - flow.window_packets_before;
    if (packets == 0) return;
    windows_.append(slot, flow.window_index, flow.data_bytes - flow.window_bytes_before, packets);
    flow.window_packets_before = flow.data_packets;
    flow.window_bytes_before = flow.data_bytes;
  }
  void close_burst(std::uint32_t slot);

  // meter_records.cpp: records made on the way
  void count_sighting(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting);
  void note_event(std::uint32_t slot, EventKind kind, std::uint32_t psn, std::uint32_t count, std::int64_t ns);
  void note_marker(std::uint32_t slot, MarkerKind kind, const PacketRecord& packet);
  void note_data_marker(std::uint32_t slot, std::uint32_t psn, std::int64_t ns);
  void mark_request(std::uint32_t slot, const PacketRecord& packet, const OpcodeTraits& traits);
  void record_messages(std::uint32_t slot);
  void record_message(std::uint32_t slot, const OpenMessage& message);
  void record_control(std::uint32_t slot, const OpenMessage& message);
  template <typename Record>
  void keep(std::vector<Record>& records, const Record& record) {
    if (records.size() == config_.max_records || record_bytes_ + sizeof(Record) > config_.record_budget_bytes) {
      ++current_.counters.records_lost;
      return;
    }
    record_bytes_ += sizeof(Record);
    records.push_back(record);
  }
  void widen_bursts();
  void thin_data_markers();

  // meter_cut.cpp: flows come and go, intervals end
  std::uint32_t create_flow(const PacketRecord& packet, const ShortKey& short_key, std::uint64_t hash);
  [[nodiscard]] FlowKey key_of(std::uint32_t slot) const noexcept {
    const FlowRecord& record = cold_[slot].record;
    return {record.src, record.dst, record.dest_qpn};
  }
  [[nodiscard]] std::uint32_t oldest_newcomer();
  void evict_coldest();
  void remove_flow(std::uint32_t slot);
  void flush_messages(std::uint32_t slot);
  [[nodiscard]] bool has_news(std::uint32_t slot) const;
  void close_interval(std::uint32_t slot, Pairing::Pair pair);
  void emit_cell(std::uint32_t slot, HistogramKind kind, unsigned cell, std::uint32_t count);
  void emit_histogram(std::uint32_t slot, HistogramKind kind, Histogram& histogram);
  void emit_gaps(std::uint32_t slot);
  [[nodiscard]] std::vector<std::uint32_t> live_slots_by_flow() const;
  Interval begin_interval();
  void reserve_records(Interval& interval) const;
  void write_series(const std::vector<std::uint32_t>& slots);

  MeterConfig config_;
  bool sees_every_packet_;
  WindowClock window_clock_;
  FlowTable table_;
  std::vector<HotFlow> hot_;     // by slot
  std::vector<GapCounts> gaps_;  // by slot
  std::vector<ColdFlow> cold_;   // by slot
  std::vector<bool> live_;       // by slot
  WindowStore windows_;
  Pairing pairing_;
  Interval current_;
  std::size_t record_bytes_ = 0;       // of the interval
  std::int64_t burst_gap_ns_;          // the configured one << the interval's doublings
  std::uint8_t data_marker_mask_ = 0;  // of the hash's bits beyond those that choose: these must be zero
  std::size_t data_markers_ = 0;       // of the interval
  std::vector<OpenMessage> done_;      // scratch of record_messages()
  std::vector<PacketRecord> parsed_;   // scratch of update_batch()
  std::uint32_t next_flow_;
  struct Newcomer {
    std::uint32_t slot;
    std::uint32_t flow;
  };
  std::deque<Newcomer> newcomers_;  // flows in the order of their making; some have been proven or gone since
  std::uint32_t eviction_hand_ = 0;
  std::uint32_t evicted_records_ = 0;  // of this interval
  struct Overflow {
    std::uint32_t slot;
    std::uint32_t cell;
  };
  std::vector<Overflow> gap_overflows_;  // of this interval: 2^16 gaps each
};

}  // namespace pulse
