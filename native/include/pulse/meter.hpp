// SPDX-License-Identifier: Apache-2.0
//
// The measure stage: packets in, records per interval out. State that outlives a
// cut (open messages, PSN spaces, flow numbers, pairs) stays in the meter, so
// intervals join to what one long interval would have held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pulse/flow_state.hpp"
#include "pulse/flow_table.hpp"
#include "pulse/interval.hpp"
#include "pulse/packet_batch.hpp"
#include "pulse/pairing.hpp"
#include "pulse/records.hpp"
#include "pulse/window_store.hpp"

namespace pulse {

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
  std::size_t window_budget_bytes = 16U << 20;
  std::size_t max_records = 1U << 20;  // of each kind per interval
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

 private:
  static constexpr std::size_t kBlock = 128;  // packets whose flows are fetched into the cache together

  // meter.cpp: the way of a packet
  void update_block(std::span<const PacketRecord> packets);
  void prefetch_flow(std::uint32_t slot) const noexcept;
  void on_packet(std::uint32_t slot, const PacketRecord& packet);
  void on_request(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns);
  void on_boundary(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting);
  void on_datagram(std::uint32_t slot, const PacketRecord& packet);
  void on_response(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns);
  void on_acknowledge(std::uint32_t slot, const PacketRecord& packet);
  void on_nak(std::uint32_t slot, const PacketRecord& packet);
  void acknowledge_up_to(std::uint32_t slot, std::uint32_t psn, std::int64_t ns, bool names_packet);
  void count_data(std::uint32_t slot, const PacketRecord& packet);
  void close_window(std::uint32_t slot);
  void close_burst(std::uint32_t slot);

  // meter_records.cpp: records made on the way
  void count_sighting(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting);
  void note_event(std::uint32_t slot, EventKind kind, std::uint32_t psn, std::uint32_t count, std::int64_t ns);
  void note_marker(std::uint32_t slot, MarkerKind kind, const PacketRecord& packet);
  void mark_request(std::uint32_t slot, const PacketRecord& packet, const OpcodeTraits& traits);
  void record_messages(std::uint32_t slot);
  void record_message(std::uint32_t slot, const OpenMessage& message);
  void record_control(std::uint32_t slot, const OpenMessage& message);
  template <typename Record>
  void keep(std::vector<Record>& records, const Record& record);

  // meter_cut.cpp: flows come and go, intervals end
  std::uint32_t create_flow(const PacketRecord& packet, std::uint64_t hash);
  void evict_coldest();
  void remove_flow(std::uint32_t slot);
  void flush_messages(std::uint32_t slot);
  [[nodiscard]] bool has_news(std::uint32_t slot) const;
  void close_interval(std::uint32_t slot, Pairing::Pair pair);
  void emit_histogram(std::uint32_t slot, HistogramKind kind, Histogram& histogram);
  [[nodiscard]] std::vector<std::uint32_t> live_slots_by_flow() const;
  void write_windows(std::int64_t begin_ns, const std::vector<std::uint32_t>& slots);

  MeterConfig config_;
  bool sees_every_packet_;
  WindowClock window_clock_;
  FlowTable table_;
  std::vector<HotFlow> hot_;    // by slot
  std::vector<ColdFlow> cold_;  // by slot
  std::vector<bool> live_;      // by slot
  WindowStore windows_;
  Pairing pairing_;
  Interval current_;
  std::vector<OpenMessage> done_;     // scratch of record_messages()
  std::vector<PacketRecord> parsed_;  // scratch of update_batch()
  std::uint32_t next_flow_ = 0;
  std::uint32_t eviction_hand_ = 0;
  std::uint32_t evicted_records_ = 0;  // of this interval
  bool block_is_stale_ = false;        // a slot changed hands within the block
};

}  // namespace pulse
