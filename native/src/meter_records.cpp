// SPDX-License-Identifier: Apache-2.0
//
// The records a meter makes on the way: events, markers, messages, controls.
#include <algorithm>
#include <limits>

#include "pulse/marker_hash.hpp"
#include "pulse/meter.hpp"
#include "pulse/saturating.hpp"

namespace pulse {

namespace {

// Two events of a kind within this time are one record, if the kind comes in runs.
constexpr std::int64_t kEventRunNs = 1'000'000;

constexpr std::int64_t kMaxBurstGapNs = std::numeric_limits<std::uint32_t>::max();

// A gap and a restart each stand alone: their PSN says what is missing or where a life begins.
bool comes_in_runs(EventKind kind) { return kind != EventKind::gap && kind != EventKind::restart; }

}  // namespace

void Meter::count_sighting(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting) {
  FlowRecord& record = cold_[slot].record;
  switch (sighting.sight) {
    case Sight::next:
      return;
    case Sight::ahead:
      add_saturating(record.gap_psns, sighting.missing);
      return note_event(slot, EventKind::gap, psn_of(sighting.position - sighting.missing), sighting.missing,
                        packet.ns);
    case Sight::late:
      record.late_packets += 1;
      return note_event(slot, EventKind::late, packet.psn, 1, packet.ns);
    case Sight::repeat:
      record.repeat_packets += 1;
      record.repeat_bytes += packet.payload_bytes;
      return note_event(slot, EventKind::repeat, packet.psn, 1, packet.ns);
    case Sight::restart:
      return note_event(slot, EventKind::restart, packet.psn, 1, packet.ns);
  }
}

void Meter::note_event(std::uint32_t slot, EventKind kind, std::uint32_t psn, std::uint32_t count, std::int64_t ns) {
  ColdFlow& cold = cold_[slot];
  std::uint32_t& last = cold.last_event[static_cast<std::size_t>(kind)];
  if (comes_in_runs(kind) && last < current_.events.size()) {
    EventRecord& run = current_.events[last];
    if (run.flow == cold.record.flow && run.kind == static_cast<std::uint8_t>(kind)) {
      const bool contiguous = ((run.psn + run.count) & kPsnMask) == psn;
      if (contiguous || elapsed_ns(run.end_ns, ns) <= kEventRunNs) {
        run.end_ns = std::max(run.end_ns, ns);
        run.count += count;
        return;
      }
    }
  }
  last = static_cast<std::uint32_t>(current_.events.size());
  keep(current_.events, EventRecord{ns, ns, cold.record.flow, psn, count, static_cast<std::uint8_t>(kind), {}});
}

void Meter::note_marker(std::uint32_t slot, MarkerKind kind, const PacketRecord& packet) {
  const FlowRecord& record = cold_[slot].record;
  const bool has_msn = kind == MarkerKind::ack || kind == MarkerKind::nak;
  keep(current_.markers, MarkerRecord{packet.ns, record.flow, packet.psn, has_msn ? packet.msn : 0,
                                      static_cast<std::uint8_t>(kind), 0, static_cast<std::uint16_t>(record.lives)});
}

// Until the cut a data marker carries the bits of its hash by which it may have to leave.
void Meter::note_data_marker(std::uint32_t slot, std::uint32_t psn, std::int64_t ns) {
  const FlowRecord& record = cold_[slot].record;
  const auto bits = static_cast<std::uint8_t>(data_marker_hash(psn, record.dest_qpn) >> kDataMarkerBits);
  if ((bits & data_marker_mask_) != 0) return;
  if (data_markers_ >= config_.max_data_markers && data_marker_mask_ != 0xff) thin_data_markers();
  if ((bits & data_marker_mask_) != 0) return;
  ++data_markers_;
  keep(current_.markers, MarkerRecord{ns, record.flow, psn, 0, static_cast<std::uint8_t>(MarkerKind::data), bits,
                                      static_cast<std::uint16_t>(record.lives)});
}

// A request seen for the first time, if both ends choose it.
void Meter::mark_request(std::uint32_t slot, const PacketRecord& packet, const OpcodeTraits& traits) {
  if (traits.group == OpcodeGroup::read_request) return;
  if (traits.place == MessagePlace::first) return note_marker(slot, MarkerKind::first, packet);
  if (traits.place == MessagePlace::only) {
    return note_marker(slot, packet.payload_bytes <= kControlMaxBytes ? MarkerKind::control : MarkerKind::only, packet);
  }
  if (sees_every_packet_ && is_data_marker(packet.psn, packet.dest_qpn)) note_data_marker(slot, packet.psn, packet.ns);
}

// Turns the messages that the trackers have finished into records.
void Meter::record_messages(std::uint32_t slot) {
  for (const OpenMessage& message : done_) {
    const OpcodeTraits& traits = opcode_traits(message.opcode);
    const bool is_control = traits.group == OpcodeGroup::request && traits.place == MessagePlace::only &&
                            message.payload_bytes <= kControlMaxBytes;
    if (is_control) {
      record_control(slot, message);
    } else {
      record_message(slot, message);
    }
  }
  done_.clear();
}

void Meter::record_message(std::uint32_t slot, const OpenMessage& message) {
  ColdFlow& cold = cold_[slot];
  const std::uint64_t bytes = message.bytes();
  if (message.has_end()) {
    cold.record.messages += 1;
    cold.sizes.add(bytes);
  }
  // The packets between FIRST and LAST stayed away; their bytes are known from the length.
  if (config_.steered && message.has_end() && bytes > message.payload_bytes) {
    hot_[slot].data_bytes += bytes - message.payload_bytes;
  }
  keep(current_.messages,
       MessageRecord{message.start_ns, message.last_ns, bytes, cold.record.flow, psn_of(message.first), message.packets,
                     message.immediate, message.opcode, message.flags, message.life, message.longest_gap_ns});
}

void Meter::record_control(std::uint32_t slot, const OpenMessage& message) {
  FlowRecord& record = cold_[slot].record;
  record.controls += 1;
  keep(current_.controls, ControlRecord{message.start_ns, record.flow, psn_of(message.first),
                                        static_cast<std::uint32_t>(message.payload_bytes), message.immediate,
                                        message.opcode, message.flags, message.life, 0});
}

// Bursts of a flow with no more than twice the gap between them become one, until there is room again.
void Meter::widen_bursts() {
  std::vector<BurstRecord>& bursts = current_.bursts;
  std::sort(bursts.begin(), bursts.end(), [](const BurstRecord& a, const BurstRecord& b) {
    return a.flow != b.flow ? a.flow < b.flow : a.first_ns < b.first_ns;
  });
  while (bursts.size() > config_.max_bursts / 2 && burst_gap_ns_ <= kMaxBurstGapNs / 2) {
    burst_gap_ns_ *= 2;
    ++current_.counters.burst_gap_doublings;
    std::size_t kept = 0;
    for (std::size_t i = 1; i < bursts.size(); ++i) {
      BurstRecord& last = bursts[kept];
      const BurstRecord& next = bursts[i];
      const std::int64_t gap_ns = elapsed_ns(last.last_ns, next.first_ns);
      if (last.flow != next.flow || gap_ns > burst_gap_ns_) {
        bursts[++kept] = next;
        continue;
      }
      last.last_ns = std::max(last.last_ns, next.last_ns);
      last.bytes += next.bytes;
      last.packets += next.packets;
      last.longest_gap_ns = std::max({last.longest_gap_ns, next.longest_gap_ns, gap_ns});
    }
    record_bytes_ -= (bursts.size() - kept - 1) * sizeof(BurstRecord);
    bursts.resize(kept + 1);
  }
}

// Keeps the data markers with one more zero bit in their hash.
void Meter::thin_data_markers() {
  data_marker_mask_ = static_cast<std::uint8_t>(unsigned{data_marker_mask_} << 1U | 1U);
  ++current_.counters.marker_halvings;
  const auto left = std::erase_if(current_.markers, [this](const MarkerRecord& marker) {
    return marker.kind == static_cast<std::uint8_t>(MarkerKind::data) && (marker.reserved & data_marker_mask_) != 0;
  });
  data_markers_ -= left;
  record_bytes_ -= left * sizeof(MarkerRecord);
}

}  // namespace pulse
