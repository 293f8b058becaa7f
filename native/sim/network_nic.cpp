// SPDX-License-Identifier: Apache-2.0
//
// The way of packets out of and into a NIC. Its engine takes connections in turn
// and fetches their data a little faster than the port sends; the port follows a
// few packets behind.
#include <algorithm>
#include <utility>

#include "sim/network.hpp"

namespace pulse::sim {

void Network::wake(std::uint32_t end) {
  const std::uint32_t nic = plan_.ends[end].nic;
  if (end_ready_[end] || slip_out(nic, end)) return;
  end_ready_[end] = true;
  nics_[nic].ready.push_back(end);
  ask_to_serve(nic);
}

void Network::send_response(Segment segment) {
  const std::uint32_t nic = plan_.ends[segment.run.end].nic;
  if (mid_train(nics_[nic]) && nics_[nic].responses.empty()) {
    transmit(nic, segment, true);
    return;
  }
  nics_[nic].responses.push_back(store(segment));
  ask_to_serve(nic);
}

void Network::ask_to_serve(std::uint32_t number) {
  Nic& nic = nics_[number];
  if (nic.serve_asked || nic.paused) return;
  nic.serve_asked = true;
  const bool shaped = nic.wire_ps_per_byte > plan_.nics[number].ps_per_byte;
  const double ahead = (shaped ? kShaperBytes : kAheadBytes) * nic.wire_ps_per_byte;
  events_.at(std::max(nic.engine_free_ps, nic.wire_free_ps - static_cast<Picoseconds>(ahead)), EventKind::nic_serve,
             number);
}

void Network::serve_nic(std::uint32_t number) {
  Nic& nic = nics_[number];
  nic.serve_asked = false;
  if (nic.paused || nic.dead) return;
  Segment segment;
  if (!next_to_send(number, segment)) return;
  transmit(number, segment, false);
  if (!nic.responses.empty() || !nic.ready.empty()) ask_to_serve(number);
}

bool Network::next_to_send(std::uint32_t number, Segment& segment) {
  Nic& nic = nics_[number];
  if (!nic.responses.empty()) {
    const std::uint32_t index = nic.responses.pop_front();
    segment = segments_[index];
    discard(index);
    return true;
  }
  while (!nic.ready.empty()) {
    const std::uint32_t end = nic.ready.front();
    const std::uint32_t limit = train_limit(end);
    const std::uint32_t most = nic.ready.size() > 1 ? std::min(nic.quantum_left, limit) : limit;
    if (!user_.next_segment(end, most, segment)) {
      nic.ready.pop_front();
      end_ready_[end] = false;
      nic.quantum_left = plan_.network.quantum_packets;
      continue;
    }
    nic.quantum_left -= std::min(nic.quantum_left, segment.run.count);
    if (nic.quantum_left == 0) {
      nic.ready.push_back(nic.ready.pop_front());
      nic.quantum_left = plan_.network.quantum_packets;
    }
    return true;
  }
  return false;
}

// How many packets of an end may travel as one now.
std::uint32_t Network::train_limit(std::uint32_t end) const {
  const std::uint32_t most = plan_.network.train_packets;
  if (most == 1) return 1;
  const EndAddress& address = plan_.ends[end];
  const Nic& nic = nics_[address.nic];
  if (nic.loss_before_tap.probability > 0 || nic.loss_on_wire.probability > 0) return 1;
  if (nics_[address.peer_nic].drain_ps_per_byte > 0) return 1;
  const Path& path = plan_.paths[path_of_end_[end]];
  for (std::uint32_t hop = 0; hop < path.hops; ++hop) {
    const Port& port = ports_[path.ports[hop]];
    if (port.loss.probability > 0 || port.contended_until_ps > events_.now() || port.paused) return 1;
  }
  return most;
}

bool Network::mid_train(const Nic& nic) const {
  return nic.train_packet_ps > 0 && nic.wire_free_ps > events_.now() && !nic.paused && !nic.dead;
}

// While a train is under way, the first packet of another connection goes out between its packets.
// False when the connection has to be served in turn as well.
bool Network::slip_out(std::uint32_t number, std::uint32_t end) {
  const Nic& nic = nics_[number];
  if (!mid_train(nic) || !nic.ready.empty() || nic.train_end == end) return false;
  Segment segment;
  if (!user_.next_segment(end, 1, segment)) return true;
  transmit(number, segment, true);
  return !user_.has_more(end);
}

// Sends a segment behind all that was sent before, or `between` the packets of the train that is under way.
void Network::transmit(std::uint32_t number, Segment segment, bool between) {
  Nic& nic = nics_[number];
  const Picoseconds now = events_.now();
  const auto engine = [&](std::uint32_t bytes) { return static_cast<Picoseconds>(bytes * nic.engine_ps_per_byte); };
  const auto wire = [&](std::uint32_t bytes) { return static_cast<Picoseconds>(bytes * nic.wire_ps_per_byte); };
  Picoseconds ready = now;
  const bool fetched = segment.run.verb < Verb::acknowledge && segment.purpose.kind != Purpose::Kind::credit;
  if (fetched && plan_.network.fetch_jitter_ps > 0) {
    ready += static_cast<Picoseconds>(nic.random.exponential(plan_.network.fetch_jitter_ps));
  }
  const Picoseconds queued = now + engine(segment.packet_bytes);
  if (between) {
    const Picoseconds start = now + (nic.wire_free_ps - now) % nic.train_packet_ps;  // the packet on the wire has left
    nic.engine_free_ps += engine(segment.bytes);
    nic.wire_free_ps += wire(segment.bytes);
    segment.first_ps = segment.last_ps = std::max(start + wire(segment.bytes), queued);
  } else {
    const Picoseconds start = std::max(ready, nic.wire_free_ps);
    nic.engine_free_ps = now + engine(segment.bytes);
    nic.wire_free_ps = start + wire(segment.bytes);
    segment.first_ps = std::max(start + wire(segment.packet_bytes), queued);
    segment.last_ps = std::max({segment.first_ps, nic.wire_free_ps, nic.engine_free_ps});
    nic.train_end = segment.run.end;
    nic.train_packet_ps = segment.run.count > 1 ? wire(segment.packet_bytes) : 0;
  }
  segment.run.ip_id = take_ip_ids(number, segment.run.count);
  segment.path = path_of_end_[segment.run.end];
  segment.hop = 0;
  segment.upstream = number;
  segment.left_first_ps = segment.first_ps;
  segment.left_last_ps = segment.last_ps;
  const Picoseconds behind_ps = segment.first_ps - queued;  // of the port behind the engine
  if (nic.loss_before_tap.probability <= 0) return put_on_wire(number, segment, queued);
  for (Segment rest; segment.run.count > 0; segment = rest) {
    rest.run.count = 0;
    lose(nic.loss_before_tap, segment, rest);
    if (segment.run.count > 0) put_on_wire(number, segment, segment.first_ps - behind_ps);
  }
}

void Network::put_on_wire(std::uint32_t number, const Segment& segment, Picoseconds queued_ps) {
  Nic& nic = nics_[number];
  see(number, segment, queued_ps, true);
  if (nic.link_down) {
    dropped_ += segment.run.count;
    return;
  }
  Picoseconds extra = plan_.nics[number].latency_ps;
  if (plan_.nics[number].jitter_ps > 0) {
    extra += static_cast<Picoseconds>(nic.random.uniform() * static_cast<double>(plan_.nics[number].jitter_ps));
  }
  if (nic.loss_on_wire.probability <= 0) return send_over_link(nic, segment, extra);
  Segment ahead = segment;
  for (Segment rest; ahead.run.count > 0; ahead = rest) {
    rest.run.count = 0;
    lose(nic.loss_on_wire, ahead, rest);
    if (ahead.run.count > 0) send_over_link(nic, ahead, extra);
  }
}

void Network::send_over_link(Nic& nic, const Segment& segment, Picoseconds extra_ps) {
  const std::uint32_t index = store(segment);
  Segment& arriving = segments_[index];
  arriving.first_ps = std::max(segment.first_ps + extra_ps, nic.previous_arrival_ps);
  arriving.last_ps = std::max(segment.last_ps + extra_ps, arriving.first_ps);
  nic.previous_arrival_ps = arriving.first_ps;
  forward(index);
}

void Network::arrive_at_nic(std::uint32_t index) {
  if (!keep_what_left(index)) return;
  const std::uint32_t number = plan_.ends[segments_[index].run.end].peer_nic;
  Nic& nic = nics_[number];
  if (nic.dead || nic.link_down) {
    cut_short(number, index);
    return;
  }
  see(number, segments_[index], 0, false);
  if (nic.drain_ps_per_byte <= 0 && nic.receiving.empty()) {
    hand_over(number, index);
    return;
  }
  hold(segments_[index]);
  nic.receiving.push_back(index);
  if (nic.receiving.size() == 1) drain(number);
}

// Takes the first packet of the receive buffer on its way to memory.
void Network::drain(std::uint32_t number) {
  Nic& nic = nics_[number];
  const Segment& segment = segments_[nic.receiving.front()];
  events_.after(static_cast<Picoseconds>(segment.bytes * nic.drain_ps_per_byte), EventKind::nic_drained, number);
}

void Network::on_drained(std::uint32_t number) {
  Nic& nic = nics_[number];
  hand_over(number, nic.receiving.pop_front());
  if (!nic.receiving.empty()) drain(number);
}

// Of a segment under way when the NIC or its link failed, what had come before.
void Network::cut_short(std::uint32_t number, std::uint32_t index) {
  const Nic& nic = nics_[number];
  const Segment whole = segments_[index];
  discard(index);
  const std::uint32_t came = packets_until(whole.first_ps, whole.last_ps, whole.run.count, nic.failed_ps);
  dropped_ += whole.run.count - came;
  if (came == 0) return;
  const Segment part = part_of(whole, 0, came);
  see(number, part, 0, false);
  if (!nic.dead) user_.receive(part);
}

// At once what was sent is seen no longer if the NIC died before it passed.
void Network::forget_future(std::uint32_t number) {
  std::vector<Sighting>& seen = nics_[number].sightings;
  const Picoseconds now = events_.now();
  for (Sighting& sighting : seen) {
    const Picoseconds last = sighting.first_ps + sighting.spacing_ps * (sighting.run.count - 1);
    if (!sighting.sent || last <= now) continue;
    const bool begun = sighting.first_ps <= now;
    sighting.run.count = begun ? static_cast<std::uint32_t>((now - sighting.first_ps) / sighting.spacing_ps) + 1 : 0;
    sighting.run.ack_request = false;
  }
  std::erase_if(seen, [](const Sighting& sighting) { return sighting.run.count == 0; });
}

void Network::take_sightings(std::uint32_t number, std::vector<Sighting>& taken) {
  const Picoseconds now = events_.now();
  std::vector<Sighting>& seen = nics_[number].sightings;
  std::vector<Sighting> open;  // still passing; a failure may cut it short
  open.reserve(seen.size());   // the next stretch is likely as long
  std::erase_if(seen, [&](const Sighting& sighting) {
    const bool passing = sighting.first_ps + sighting.spacing_ps * (sighting.run.count - 1) > now;
    if (passing) open.push_back(sighting);
    return passing;
  });
  taken = std::exchange(seen, std::move(open));
}

void Network::hand_over(std::uint32_t number, std::uint32_t index) {
  release(segments_[index]);
  const Segment segment = segments_[index];  // a copy: the user may cause new segments
  discard(index);
  if (!nics_[number].dead) user_.receive(segment);
}

void Network::see(std::uint32_t number, const Segment& segment, Picoseconds queued_ps, bool sent) {
  const PacketRun& run = segment.run;
  const bool inside = run.verb < Verb::acknowledge && run.offset > 0 && run.offset + run.count < run.message_packets;
  if (!tapped_ || (inside && !middles_[sent ? 1 : 0])) return;
  const std::uint32_t gaps = run.count - 1;
  const Picoseconds spacing = gaps > 0 ? (segment.last_ps - segment.first_ps) / gaps : 0;
  nics_[number].sightings.push_back({run, segment.first_ps, spacing, queued_ps, sent});
}

}  // namespace pulse::sim
