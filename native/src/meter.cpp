// SPDX-License-Identifier: Apache-2.0
//
// The way of a packet through the meter.
#include "pulse/meter.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string>

#include "pulse/marker_hash.hpp"
#include "pulse/saturating.hpp"

namespace pulse {

namespace {

constexpr std::uint64_t kMaxWindowNs = 1U << 26;  // bytes of a window at 400 Gb/s stay below 2^32
constexpr std::uint8_t kEcnCongestionExperienced = 3;

MeterConfig checked(const MeterConfig& config) {
  const auto demand = [](bool holds, const std::string& rule) {
    if (!holds) throw std::invalid_argument("meter configuration: " + rule);
  };
  demand(config.window_ns >= 100 && config.window_ns <= kMaxWindowNs,
         "window_ns is " + std::to_string(config.window_ns) + ", must be within 100 and 2^26");
  demand(config.burst_gap_ns > 0 && config.burst_gap_ns <= std::numeric_limits<std::uint32_t>::max(),
         "burst_gap_ns is " + std::to_string(config.burst_gap_ns) + ", must be within 1 and 2^32 - 1");
  demand(config.max_flows >= 1 && config.max_flows <= 1U << 20,
         "max_flows is " + std::to_string(config.max_flows) + ", must be within 1 and 2^20");
  demand(config.idle_ns > 0, "idle_ns is " + std::to_string(config.idle_ns) + ", must be positive");
  demand(config.sample_shift <= 24, "sample_shift is " + std::to_string(config.sample_shift) + ", must be at most 24");
  demand(config.max_packets >= 1 && config.max_packets < 0xffff'ffff,
         "max_packets is " + std::to_string(config.max_packets) + ", must be within 1 and 2^32 - 2");
  demand(config.max_records >= 1, "max_records must be positive");
  demand(config.max_bursts >= 1, "max_bursts must be positive");
  demand(config.max_data_markers >= 1, "max_data_markers must be positive");
  return config;
}

MessagePacket message_packet(const PacketRecord& packet, const PsnSighting& sighting, std::uint32_t life) {
  return {packet.ns,
          sighting.position,
          sighting.sight,
          opcode_traits(packet.opcode),
          packet.opcode,
          packet.payload_bytes,
          packet.dma_bytes,
          packet.immediate,
          static_cast<std::uint16_t>(life)};
}

}  // namespace

Meter::Meter(const MeterConfig& config)
    : config_(checked(config)),
      sees_every_packet_(!config.steered && config.sample_shift == 0),
      window_clock_(config.window_ns),
      table_(config.max_flows),
      windows_(config.max_flows, config.window_budget_bytes),
      pairing_(config.max_flows),
      burst_gap_ns_(config.burst_gap_ns),
      next_flow_(config.first_flow) {
  // Address space only; memory is used as flows appear.
  hot_.reserve(config.max_flows);
  gaps_.reserve(config.max_flows);
  cold_.reserve(config.max_flows);
  reserve_records(current_);
  done_.reserve(16);
  parsed_.resize(kBlock);
}

void Meter::on_packet(std::uint32_t slot, const PacketRecord& packet) {
  HotFlow& flow = hot_[slot];
  flow.end_run();
  const std::int64_t idle_ns = elapsed_ns(flow.last_ns, packet.ns);
  if (flow.packets() == 0) {
    cold_[slot].record.first_ns = packet.ns;
  } else if (packet.ns < flow.last_ns) {
    cold_[slot].record.first_ns = std::min(cold_[slot].record.first_ns, packet.ns);
  }
  flow.last_ns = std::max(flow.last_ns, packet.ns);
  flow.wire_bytes += packet.wire_bytes;
  if (packet.ecn == kEcnCongestionExperienced) {
    cold_[slot].record.ecn_ce += 1;
    note_event(slot, EventKind::ecn_ce, packet.psn, 1, packet.ns);
  }
  dispatch(slot, packet, idle_ns);
  flow.begin_run();
}

void Meter::dispatch(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns) {
  const OpcodeGroup group = opcode_traits(packet.opcode).group;
  switch (group) {
    case OpcodeGroup::request:
    case OpcodeGroup::read_request:
    case OpcodeGroup::atomic:
      if (opcode_transport(packet.opcode) == Transport::ud) return on_datagram(slot, packet);
      return on_request(slot, packet, idle_ns);
    case OpcodeGroup::read_response:
      return on_response(slot, packet, idle_ns);
    default:
      break;
  }
  hot_[slot].other_packets += 1;
  if (group == OpcodeGroup::acknowledge) {
    on_acknowledge(slot, packet);
  } else if (group == OpcodeGroup::atomic_response) {
    acknowledge_up_to(slot, packet.psn, packet.ns, true);
  } else if (group == OpcodeGroup::cnp) {
    cold_[slot].record.cnp += 1;
    note_event(slot, EventKind::cnp, packet.psn, 1, packet.ns);
  }
}

void Meter::on_request(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns) {
  HotFlow& flow = hot_[slot];
  const PsnContext context{idle_ns, starts_message(opcode_traits(packet.opcode).place), !sees_every_packet_};
  const PsnSighting sighting = classify_psn(flow.psn_next, cold_[slot].psns, packet.psn, context);
  count_data(slot, packet);
  on_boundary(slot, packet, sighting);
}

// Every request packet but the MIDDLE of a message that runs smoothly.
void Meter::on_boundary(std::uint32_t slot, const PacketRecord& packet, const PsnSighting& sighting) {
  HotFlow& flow = hot_[slot];
  ColdFlow& cold = cold_[slot];
  const OpcodeTraits& traits = opcode_traits(packet.opcode);
  // Not of a MIDDLE, which the short way takes without a look at them.
  if (traits.place != MessagePlace::middle) {
    cold.record.udp_sport = packet.udp_sport;
    cold.record.transport = static_cast<std::uint8_t>(opcode_transport(packet.opcode));
  }
  if (sighting.sight == Sight::restart) {
    cold.messages.flush(flow.message, done_);
    record_messages(slot);
    pairing_.restarted(slot);
    add_saturating(cold.record.lives, 1);
  }
  count_sighting(slot, packet, sighting);
  const bool first_sight = sighting.sight != Sight::repeat;
  const bool is_message = traits.group == OpcodeGroup::request;
  const bool names_ack =
      packet.ack_req != 0 || !is_message || traits.place == MessagePlace::last || traits.place == MessagePlace::only;
  if (!first_sight) {
    pairing_.resent(slot, packet.psn);
  } else if (names_ack) {
    pairing_.sent(slot, packet.psn, packet.ns);
  }
  if (traits.group == OpcodeGroup::read_request) {
    cold.record.read_requests += 1;
    if (first_sight) cold.psns.note_read(sighting.position, packet.dma_bytes);
  }
  if (first_sight) mark_request(slot, packet, traits);
  if (is_message) {
    cold.messages.on_packet(flow.message, message_packet(packet, sighting, cold.record.lives), cold.psns.holes(),
                            done_);
  } else if (sighting.sight == Sight::next || sighting.sight == Sight::ahead) {
    cold.messages.interrupt(flow.message, sighting.sight, done_);
  }
  record_messages(slot);
  if (traits.group == OpcodeGroup::atomic && first_sight) {
    OpenMessage atomic;
    atomic.start_ns = packet.ns;
    atomic.first = sighting.position;
    atomic.payload_bytes = packet.payload_bytes;
    atomic.opcode = packet.opcode;
    atomic.life = static_cast<std::uint16_t>(cold.record.lives);
    record_control(slot, atomic);
  }
}

// UD: many senders may share a destination queue pair, so PSNs and messages say nothing; counts only.
void Meter::on_datagram(std::uint32_t slot, const PacketRecord& packet) {
  count_data(slot, packet);
  FlowRecord& record = cold_[slot].record;
  (packet.payload_bytes <= kControlMaxBytes ? record.controls : record.messages) += 1;
}

void Meter::on_response(std::uint32_t slot, const PacketRecord& packet, std::int64_t idle_ns) {
  ColdFlow& cold = cold_[slot];
  if (!cold.responses) cold.responses = std::make_unique<ResponseStream>(sees_every_packet_);
  ResponseStream& stream = *cold.responses;
  const OpcodeTraits& traits = opcode_traits(packet.opcode);
  const bool starts = starts_message(traits.place);
  // Between two responses the requester has used PSNs for other requests.
  const PsnContext context{idle_ns, starts, starts || !sees_every_packet_};
  const PsnSighting sighting = classify_psn(stream.psn_next, stream.psns, packet.psn, context);
  count_data(slot, packet);
  if (sighting.sight == Sight::restart) {
    stream.messages.flush(stream.message, done_);
  } else {
    count_sighting(slot, packet, sighting);
  }
  stream.messages.on_packet(stream.message, message_packet(packet, sighting, cold.record.lives), stream.psns.holes(),
                            done_);
  record_messages(slot);
  if (traits.place != MessagePlace::middle) acknowledge_up_to(slot, packet.psn, packet.ns, starts);
}

void Meter::on_acknowledge(std::uint32_t slot, const PacketRecord& packet) {
  FlowRecord& record = cold_[slot].record;
  if ((packet.syndrome & 0xe0) != 0) return on_nak(slot, packet);
  record.acks += 1;
  const bool first_sight = (record.seen & 2) == 0 || psn_distance(packet.psn, record.psn_acked) > 0 ||
                           psn_distance(packet.psn, record.psn_acked) < -kGoBackWindow;
  if (!first_sight) {
    record.duplicate_acks += 1;
    return;
  }
  acknowledge_up_to(slot, packet.psn, packet.ns, true);
  if (is_ack_marker(packet.psn, packet.msn)) note_marker(slot, MarkerKind::ack, packet);
}

void Meter::on_nak(std::uint32_t slot, const PacketRecord& packet) {
  ColdFlow& cold = cold_[slot];
  EventKind kind = EventKind::nak_sequence;
  if ((packet.syndrome & 0xe0) == 0x20) {
    cold.record.rnr += 1;
    kind = EventKind::rnr;
  } else if (packet.syndrome == 0x60) {
    cold.record.nak_sequence += 1;
  } else {
    cold.record.nak_other += 1;
    if (packet.syndrome < 0x61 || packet.syndrome > 0x63) return;  // reserved
    kind = packet.syndrome == 0x61   ? EventKind::nak_invalid
           : packet.syndrome == 0x62 ? EventKind::nak_access
                                     : EventKind::nak_operational;
  }
  note_event(slot, kind, packet.psn, 1, packet.ns);
  // A NAK names the first packet that was not taken; all before it are acknowledged.
  if ((cold.record.seen & 2) != 0) acknowledge_up_to(slot, (packet.psn - 1) & kPsnMask, packet.ns, false);
  if (cold.last_nak_psn != packet.psn && is_ack_marker(packet.psn, packet.msn)) {
    note_marker(slot, MarkerKind::nak, packet);
  }
  cold.last_nak_psn = packet.psn;
}

// The flow acknowledged the opposite flow's packets up to `psn`; `names_packet` when it was sent to say just that.
void Meter::acknowledge_up_to(std::uint32_t slot, std::uint32_t psn, std::int64_t ns, bool names_packet) {
  FlowRecord& record = cold_[slot].record;
  const std::int32_t advance = psn_distance(psn, record.psn_acked);
  // Far back is a new life of the opposite flow.
  if ((record.seen & 2) != 0 && advance <= 0 && advance >= -kGoBackWindow) return;
  record.psn_acked = psn;
  record.seen |= 2;
  if (!names_packet) return;
  const auto acknowledged = pairing_.acked(slot, psn, ns);
  if (acknowledged) {
    cold_[acknowledged->data_slot].latencies.add(static_cast<std::uint64_t>(acknowledged->latency_ns));
  }
}

// Totals, gaps, bursts and windows of a packet that carries data or is a request.
void Meter::count_data(std::uint32_t slot, const PacketRecord& packet) {
  HotFlow& flow = hot_[slot];
  std::int64_t gap_ns = 0;
  if (flow.last_data_ns != kNever) {
    gap_ns = std::max<std::int64_t>(elapsed_ns(flow.last_data_ns, packet.ns), 0);
    count_gap(slot, gap_ns);
    if (gap_ns > burst_gap_ns_) close_burst(slot);
  }
  if (!flow.burst_is_open()) {
    flow.burst_first_ns = packet.ns;
    flow.burst_longest_gap_ns = 0;
    flow.last_data_ns = packet.ns;
  } else {
    flow.burst_longest_gap_ns = std::max(flow.burst_longest_gap_ns, static_cast<std::uint32_t>(gap_ns));
    flow.last_data_ns = std::max(flow.last_data_ns, packet.ns);
  }
  enter_window(slot, packet.ns);
  flow.data_packets += 1;
  flow.data_bytes += packet.payload_bytes;
}

void Meter::close_burst(std::uint32_t slot) {
  HotFlow& flow = hot_[slot];
  if (!flow.burst_is_open()) return;
  if (current_.bursts.size() >= config_.max_bursts) widen_bursts();
  keep(current_.bursts,
       BurstRecord{flow.burst_first_ns, flow.last_data_ns, flow.data_bytes - flow.burst_bytes_before, flow.flow,
                   flow.data_packets - flow.burst_packets_before, flow.burst_longest_gap_ns});
  flow.burst_packets_before = flow.data_packets;
  flow.burst_bytes_before = flow.data_bytes;
}

}  // namespace pulse
