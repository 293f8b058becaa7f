// SPDX-License-Identifier: Apache-2.0
//
// The records a meter makes on the way: events, markers, messages, controls.
#include <algorithm>
#include <limits>

#include "pulse/marker_hash.hpp"
#include "pulse/meter.hpp"

namespace pulse {

namespace {

// Two events of a kind within this time are one record, if the kind comes in runs.
constexpr std::int64_t kEventRunNs = 1'000'000;

// A gap and a restart each stand alone: their PSN says what is missing or where a life begins.
bool comes_in_runs(EventKind kind) { return kind != EventKind::gap && kind != EventKind::restart; }

}  // namespace

template <typename Record>
void Meter::keep(std::vector<Record>& records, const Record& record) {
  if (records.size() == config_.max_records) {
    ++current_.counters.records_lost;
    return;
  }
  records.push_back(record);
}

template void Meter::keep(std::vector<BurstRecord>&, const BurstRecord&);

void Meter::count_sighting(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting) {
  FlowRecord& record = cold_[slot].record;
  switch (sighting.sight) {
    case Sight::next:
      return;
    case Sight::ahead:
      record.gap_psns += sighting.missing;
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
      if (contiguous || ns - run.end_ns <= kEventRunNs) {
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

// A request seen for the first time, if both ends choose it.
void Meter::mark_request(std::uint32_t slot, const PacketRecord& packet, const OpcodeTraits& traits) {
  if (traits.group == OpcodeGroup::read_request) return;
  if (traits.place == MessagePlace::first) return note_marker(slot, MarkerKind::first, packet);
  if (traits.place == MessagePlace::only) {
    return note_marker(slot, packet.payload_bytes <= kControlMaxBytes ? MarkerKind::control : MarkerKind::only, packet);
  }
  if (sees_every_packet_ && is_data_marker(packet.psn, packet.dest_qpn)) note_marker(slot, MarkerKind::data, packet);
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
                     message.immediate, message.opcode, message.flags, static_cast<std::uint16_t>(cold.record.lives),
                     message.longest_gap_ns});
}

void Meter::record_control(std::uint32_t slot, const OpenMessage& message) {
  FlowRecord& record = cold_[slot].record;
  record.controls += 1;
  keep(current_.controls, ControlRecord{message.start_ns, record.flow, psn_of(message.first),
                                        static_cast<std::uint32_t>(message.payload_bytes), message.immediate,
                                        message.opcode, message.flags, static_cast<std::uint16_t>(record.lives), 0});
}

}  // namespace pulse
