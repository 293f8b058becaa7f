// SPDX-License-Identifier: Apache-2.0
//
// Flows come and go, intervals end.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "pulse/meter.hpp"
#include "pulse/varint.hpp"
#include "pulse/window_series.hpp"

namespace pulse {

namespace {

constexpr std::uint32_t kEvictionSample = 32;

// Counts of one interval back to zero; identity and PSN state stay.
FlowRecord identity_of(const FlowRecord& record) {
  FlowRecord identity{};
  identity.src = record.src;
  identity.dst = record.dst;
  identity.flow = record.flow;
  identity.dest_qpn = record.dest_qpn;
  identity.reverse_flow = kNoFlow;
  identity.lives = record.lives;
  identity.psn_acked = record.psn_acked;
  identity.udp_sport = record.udp_sport;
  identity.family = record.family;
  identity.transport = record.transport;
  identity.seen = record.seen;
  return identity;
}

// The series section of an interval; `counts` whether to look for windows that are known by averages.
class SeriesWriter {
 public:
  SeriesWriter(bool counts, std::size_t room) : counts_(counts) { section_.reserve(room); }

  void add(std::uint32_t flow, const std::vector<std::uint8_t>& entries) {
    if (entries.empty()) return;
    put(flow - flow_before_);
    put(entries.size());
    section_.insert(section_.end(), entries.begin(), entries.end());
    flow_before_ = flow;
    ++flows_;
    if (!counts_) return;
    windows_.clear();
    decode_entries(entries, std::numeric_limits<std::size_t>::max(), windows_);
    for (const Window& window : windows_) averaged_ += window.length > 1 ? window.length : 0;
  }

  // The count goes in front in place: a second copy of the whole would double what an interval takes.
  [[nodiscard]] std::vector<std::uint8_t> finish() {
    std::array<std::uint8_t, kMaxVarintBytes> count;
    const std::size_t size = put_varint(count.data(), flows_);
    section_.insert(section_.begin(), count.begin(), count.begin() + static_cast<std::ptrdiff_t>(size));
    return std::move(section_);
  }

  [[nodiscard]] std::uint64_t averaged() const noexcept { return averaged_; }

 private:
  void put(std::uint64_t value) {
    std::array<std::uint8_t, kMaxVarintBytes> bytes;
    const std::size_t size = put_varint(bytes.data(), value);
    section_.insert(section_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  }

  bool counts_;
  std::uint64_t flows_ = 0;
  std::uint64_t averaged_ = 0;
  std::uint32_t flow_before_ = 0;
  std::vector<std::uint8_t> section_;
  std::vector<Window> windows_;
};

// Room for all that an interval may hold is address space until it is used, and no array ever grows on a
// packet's way, which would copy it. What is handed out gives back what it does not use.
template <typename Record>
void trim(std::vector<Record>& records) {
  constexpr std::size_t kWorthNoCopy = 1U << 20;
  if (records.size() * sizeof(Record) < kWorthNoCopy) records.shrink_to_fit();
}

}  // namespace

std::uint32_t Meter::create_flow(const PacketRecord& packet, const ShortKey& short_key, std::uint64_t hash) {
  if (table_.full()) evict_coldest();
  const FlowKey key = flow_key(packet);
  const std::uint32_t slot = table_.insert(hash);
  const Transport transport = packet.opcode == kCnp ? Transport::rc : opcode_transport(packet.opcode);
  // Only reliable connections send lost packets again.
  ColdFlow cold(sees_every_packet_ && transport == Transport::rc);
  cold.record.src = packet.src;
  cold.record.dst = packet.dst;
  cold.record.dest_qpn = packet.dest_qpn;
  cold.record.flow = next_flow_++;
  cold.record.reverse_flow = kNoFlow;
  cold.record.udp_sport = packet.udp_sport;
  cold.record.family = packet.family;
  cold.record.transport = static_cast<std::uint8_t>(transport);
  if (slot == hot_.size()) {
    hot_.emplace_back();
    gaps_.emplace_back();
    cold_.push_back(std::move(cold));
    live_.push_back(true);
  } else {
    hot_[slot] = HotFlow{};
    cold_[slot] = std::move(cold);
    live_[slot] = true;
  }
  hot_[slot].key = short_key;
  hot_[slot].flow = cold_[slot].record.flow;
  hot_[slot].last_ns = packet.ns;
  if (newcomers_.size() == 2 * std::size_t{config_.max_flows}) {
    std::erase_if(newcomers_, [this](const Newcomer& one) {
      return !live_[one.slot] || hot_[one.slot].flow != one.flow || hot_[one.slot].is_proven();
    });
  }
  newcomers_.push_back({slot, hot_[slot].flow});
  pairing_.add_flow(slot, key);
  ++current_.counters.flows_created;
  return slot;
}

// The oldest flow that has sent a few packets at most: a scan of addresses evicts itself. kNoSlot without one.
std::uint32_t Meter::oldest_newcomer() {
  while (!newcomers_.empty()) {
    const Newcomer oldest = newcomers_.front();
    newcomers_.pop_front();
    if (live_[oldest.slot] && hot_[oldest.slot].flow == oldest.flow && !hot_[oldest.slot].is_proven()) {
      return oldest.slot;
    }
  }
  return kNoSlot;
}

// Without a newcomer, of the next few slots in turn the one silent for longest: a full search per new flow would
// let new flows slow everything down.
void Meter::evict_coldest() {
  std::uint32_t coldest = oldest_newcomer();
  const auto slots = static_cast<std::uint32_t>(hot_.size());
  const std::uint32_t sample = coldest == kNoSlot ? std::min(kEvictionSample, slots) : 0;
  for (std::uint32_t i = 0; i < sample; ++i) {
    const std::uint32_t slot = eviction_hand_;
    eviction_hand_ = eviction_hand_ + 1 == slots ? 0 : eviction_hand_ + 1;
    if (live_[slot] && (coldest == kNoSlot || hot_[slot].latest_ns() < hot_[coldest].latest_ns())) coldest = slot;
  }
  ++current_.counters.flows_evicted;
  flush_messages(coldest);
  if (has_news(coldest) && evicted_records_ == config_.max_flows) {
    ++current_.counters.flows_lost;
    current_.counters.packets_lost += hot_[coldest].packets();
    gaps_[coldest] = GapCounts{};
    std::erase_if(gap_overflows_, [=](const Overflow& overflow) { return overflow.slot == coldest; });
  } else if (has_news(coldest)) {
    ++evicted_records_;
    close_interval(coldest, {});
    windows_.retire(coldest, cold_[coldest].record.flow);
  }
  remove_flow(coldest);
}

void Meter::remove_flow(std::uint32_t slot) {
  windows_.forget(slot);
  pairing_.remove_flow(slot);
  table_.erase(slot, table_.hash(hot_[slot].key));
  hot_[slot].key = ShortKey{};
  live_[slot] = false;
}

void Meter::flush_messages(std::uint32_t slot) {
  ColdFlow& cold = cold_[slot];
  hot_[slot].end_run();
  cold.messages.flush(hot_[slot].message, done_);
  if (cold.responses) cold.responses->messages.flush(cold.responses->message, done_);
  record_messages(slot);
}

void Meter::emit_cell(std::uint32_t slot, HistogramKind kind, unsigned cell, std::uint32_t count) {
  if (count == 0) return;
  current_.histograms.push_back(
      {cold_[slot].record.flow, count, static_cast<std::uint8_t>(kind), static_cast<std::uint8_t>(cell), 0});
}

void Meter::emit_histogram(std::uint32_t slot, HistogramKind kind, Histogram& histogram) {
  for (unsigned cell = 0; cell < kHistogramCells; ++cell) emit_cell(slot, kind, cell, histogram.counts[cell]);
  histogram = Histogram{};
}

void Meter::emit_gaps(std::uint32_t slot) {
  Histogram histogram;
  for (unsigned cell = 0; cell < kHistogramCells; ++cell) {
    histogram.counts[cell] = gaps_[slot].counts[GapCounts::place(cell)];
  }
  std::erase_if(gap_overflows_, [&](const Overflow& overflow) {
    if (overflow.slot != slot) return false;
    histogram.counts[overflow.cell] += 1U << 16;
    return true;
  });
  emit_histogram(slot, HistogramKind::gap_ns, histogram);
  gaps_[slot] = GapCounts{};
}

// Whether the flow had packets in the interval, or a message given up in it that had ended before.
bool Meter::has_news(std::uint32_t slot) const { return hot_[slot].packets() != 0 || cold_[slot].record.messages != 0; }

// Writes the flow's totals, its burst and its histograms, and begins its next interval.
void Meter::close_interval(std::uint32_t slot, Pairing::Pair pair) {
  HotFlow& flow = hot_[slot];
  ColdFlow& cold = cold_[slot];
  flow.end_run();
  close_burst(slot);
  close_window(slot);
  FlowRecord& record = cold.record;
  if (flow.packets() == 0) record.first_ns = flow.last_ns;
  record.last_ns = flow.last_ns;
  record.packets = flow.packets();
  record.wire_bytes = flow.wire_bytes;
  record.data_bytes = flow.data_bytes;
  record.data_packets = flow.data_packets;
  if (pair.slot != kNoSlot) {
    record.reverse_flow = cold_[pair.slot].record.flow;
    record.reverse_confidence = pair.confidence;
  }
  if (flow.psn_next != kNoPosition) {
    record.seen |= 1;
    record.psn_first = psn_of(cold.psns.first());
    record.psn_next = psn_of(flow.psn_next);
  }
  current_.flows.push_back(record);
  emit_gaps(slot);
  emit_histogram(slot, HistogramKind::message_bytes, cold.sizes);
  emit_histogram(slot, HistogramKind::ack_ns, cold.latencies);
  record = identity_of(record);
  flow.was_proven = flow.is_proven();
  flow.other_packets = 0;
  flow.data_packets = 0;
  flow.wire_bytes = 0;
  flow.data_bytes = 0;
  flow.window_packets_before = 0;
  flow.window_bytes_before = 0;
  flow.burst_packets_before = 0;
  flow.burst_bytes_before = 0;
}

std::vector<std::uint32_t> Meter::live_slots_by_flow() const {
  std::vector<std::uint32_t> slots;
  slots.reserve(table_.size());
  for (std::uint32_t slot = 0; slot < hot_.size(); ++slot) {
    if (live_[slot]) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end(),
            [this](std::uint32_t a, std::uint32_t b) { return cold_[a].record.flow < cold_[b].record.flow; });
  return slots;
}

// Evicted flows may have smaller or larger numbers than those still here.
void Meter::write_series(const std::vector<std::uint32_t>& slots) {
  struct FlowEntries {
    std::uint32_t flow;
    std::vector<std::uint8_t> entries;
  };
  const std::size_t room = windows_.entry_bytes() + 2 * kMaxVarintBytes * (slots.size() + 1);
  std::vector<FlowEntries> evicted;
  while (windows_.has_retired()) {
    FlowEntries& one = evicted.emplace_back();
    one.flow = windows_.take_retired(one.entries);
  }
  std::sort(evicted.begin(), evicted.end(), [](const auto& a, const auto& b) { return a.flow < b.flow; });
  SeriesWriter writer(windows_.degraded(), room);
  auto next_evicted = evicted.begin();
  std::vector<std::uint8_t> entries;
  for (const std::uint32_t slot : slots) {
    const std::uint32_t flow = hot_[slot].flow;
    for (; next_evicted != evicted.end() && next_evicted->flow < flow; ++next_evicted) {
      writer.add(next_evicted->flow, next_evicted->entries);
    }
    entries.clear();
    windows_.take_entries(slot, entries);
    writer.add(flow, entries);
  }
  for (; next_evicted != evicted.end(); ++next_evicted) writer.add(next_evicted->flow, next_evicted->entries);
  current_.window_ns = config_.window_ns;
  current_.series = writer.finish();
  current_.counters.windows_averaged = writer.averaged();
  current_.counters.windows_lost = windows_.lost();
  windows_.begin_interval();
}

Interval Meter::cut(std::int64_t begin_ns, std::int64_t end_ns) {
  const std::vector<std::uint32_t> slots = live_slots_by_flow();
  const std::vector<Pairing::Pair> pairs = pairing_.resolve();
  std::vector<std::uint32_t> idle;
  for (const std::uint32_t slot : slots) {
    ColdFlow& cold = cold_[slot];
    cold.messages.expire(end_ns, done_);
    if (cold.responses) cold.responses->messages.expire(end_ns, done_);
    record_messages(slot);
    const bool is_idle = elapsed_ns(hot_[slot].latest_ns(), end_ns) > config_.idle_ns;
    if (is_idle) {
      flush_messages(slot);
      idle.push_back(slot);
    }
    if (has_news(slot)) close_interval(slot, pairs[slot]);
  }
  write_series(slots);
  for (const std::uint32_t slot : idle) remove_flow(slot);
  current_.counters.flows_aged_out = idle.size();
  current_.begin_ns = begin_ns;
  current_.end_ns = end_ns;
  std::sort(current_.flows.begin(), current_.flows.end(),
            [](const FlowRecord& a, const FlowRecord& b) { return a.flow < b.flow; });
  for (MarkerRecord& marker : current_.markers) marker.reserved = 0;
  return begin_interval();
}

void Meter::reserve_records(Interval& interval) const {
  interval.messages.reserve(config_.max_records);
  interval.controls.reserve(config_.max_records);
  interval.bursts.reserve(std::min(config_.max_records, config_.max_bursts + config_.max_flows));
  interval.markers.reserve(config_.max_records);
  interval.events.reserve(config_.max_records);
}

Interval Meter::begin_interval() {
  evicted_records_ = 0;
  record_bytes_ = 0;
  data_marker_mask_ = 0;
  data_markers_ = 0;
  burst_gap_ns_ = config_.burst_gap_ns;
  Interval next;
  reserve_records(next);
  trim(current_.messages);
  trim(current_.controls);
  trim(current_.bursts);
  trim(current_.markers);
  trim(current_.events);
  return std::exchange(current_, std::move(next));
}

std::size_t Meter::memory_bytes() const noexcept {
  const auto bytes = [](const auto& values) { return values.size() * sizeof(values[0]); };
  std::size_t sum = sizeof(*this) + bytes(hot_) + bytes(gaps_) + bytes(cold_) + live_.capacity() / 8;
  for (const ColdFlow& cold : cold_) sum += cold.heap_bytes();
  sum += table_.memory_bytes() + newcomers_.size() * sizeof(Newcomer) + windows_.memory_bytes() +
         pairing_.memory_bytes() + bytes(gap_overflows_);
  return sum + bytes(current_.flows) + bytes(current_.messages) + bytes(current_.controls) + bytes(current_.bursts) +
         bytes(current_.markers) + bytes(current_.events) + bytes(current_.histograms);
}

Interval Meter::finish(std::int64_t begin_ns, std::int64_t end_ns) {
  for (const std::uint32_t slot : live_slots_by_flow()) flush_messages(slot);
  return cut(begin_ns, end_ns);
}

}  // namespace pulse
