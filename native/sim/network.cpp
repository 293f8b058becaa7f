// SPDX-License-Identifier: Apache-2.0
#include "sim/network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace pulse::sim {

Network::Network(const Plan& plan, EventQueue& events, NetworkUser& user)
    : plan_(plan),
      events_(events),
      user_(user),
      end_ready_(plan.ends.size()),
      path_of_end_(plan.ends.size()),
      delivered_until_(plan.ends.size()) {
  nics_.resize(plan.nics.size());
  ports_.resize(plan.ports.size());
  buffers_.resize(plan.nics.size() + plan.ports.size());
  for (std::uint32_t number = 0; number < nics_.size(); ++number) {
    Nic& nic = nics_[number];
    nic.wire_ps_per_byte = plan.nics[number].ps_per_byte;
    nic.engine_ps_per_byte = nic.wire_ps_per_byte * kEngineHeadroom;
    nic.quantum_left = plan.network.quantum_packets;
    nic.random = Random(derive_seed(plan.seed, 1, number));
    nic.ip_id = static_cast<std::uint16_t>(nic.random.next());
  }
  for (std::uint32_t number = 0; number < ports_.size(); ++number) {
    ports_[number].ps_per_byte = plan.ports[number].ps_per_byte;
    ports_[number].random = Random(derive_seed(plan.seed, 2, number));
  }
  for (std::uint32_t end = 0; end < path_of_end_.size(); ++end) path_of_end_[end] = end;
}

void Network::on_event(const Event& event) {
  switch (event.kind()) {
    case EventKind::nic_serve:
      return serve_nic(event.subject);
    case EventKind::port_arrive:
      return arrive_at_port(event.subject);
    case EventKind::port_serve:
      return serve_port(event.subject);
    case EventKind::nic_arrive:
      return arrive_at_nic(event.subject);
    case EventKind::nic_drained:
      return on_drained(event.subject);
    case EventKind::pause_upstream:
      return set_paused(event.subject, true);
    case EventKind::resume_upstream:
      return set_paused(event.subject, false);
    case EventKind::foreign_burst:
      return burst(event.subject);
    default:
      throw std::logic_error("an event of another layer came to the network");
  }
}

void Network::act(const ActionPlan& action) {
  const std::uint32_t subject = action.subject;
  switch (action.kind) {
    case ActionKind::engine_rate:
      nics_[subject].engine_ps_per_byte = action.value == 1.0 ? plan_.nics[subject].ps_per_byte * kEngineHeadroom
                                                              : plan_.nics[subject].ps_per_byte * action.value;
      break;
    case ActionKind::wire_rate:
      nics_[subject].wire_ps_per_byte = plan_.nics[subject].ps_per_byte * action.value;
      break;
    case ActionKind::drain_rate:
      nics_[subject].drain_ps_per_byte = plan_.nics[subject].ps_per_byte * action.value;
      break;
    case ActionKind::port_rate:
      ports_[subject].ps_per_byte = plan_.ports[subject].ps_per_byte * action.value;
      break;
    case ActionKind::loss_before_tap:
      begin_loss(nics_[subject].loss_before_tap, action.value);
      break;
    case ActionKind::loss_on_wire:
      begin_loss(nics_[subject].loss_on_wire, action.value);
      break;
    case ActionKind::port_loss:
      begin_loss(ports_[subject].loss, action.value);
      break;
    case ActionKind::link_down:
    case ActionKind::link_up: {
      const bool down = action.kind == ActionKind::link_down;
      nics_[subject].link_down = down;
      ports_[plan_.nics[subject].access_port].off = down;
      if (down) fail(subject);
      break;
    }
    case ActionKind::nic_dead:
      nics_[subject].dead = true;
      fail(subject);
      forget_future(subject);
      break;
    case ActionKind::pin_path:
      path_of_end_[subject] = static_cast<std::uint32_t>(action.extra);
      break;
    case ActionKind::foreign_load:
      start_foreign_load(action);
      break;
    default:
      throw std::logic_error("an action of another layer came to the network");
  }
}

// From now on nothing passes the NIC's link; what waits in front of it is lost.
void Network::fail(std::uint32_t number) {
  nics_[number].failed_ps = events_.now();
  drop_queue(plan_.nics[number].access_port);
}

std::uint16_t Network::take_ip_ids(std::uint32_t nic, std::uint32_t packets) {
  const std::uint16_t first = nics_[nic].ip_id;
  nics_[nic].ip_id = static_cast<std::uint16_t>(first + packets);
  return first;
}

std::uint32_t Network::next_port(const Segment& segment) const { return plan_.paths[segment.path].ports[segment.hop]; }

// Sends a stored segment on to where it arrives next.
void Network::forward(std::uint32_t index) {
  Segment& segment = segments_[index];
  const bool at_port = segment.hop < plan_.paths[segment.path].hops;
  if (!at_port) {
    Picoseconds& until = delivered_until_[segment.run.end];
    segment.first_ps = std::max(segment.first_ps, until);
    segment.last_ps = until = std::max(segment.last_ps, segment.first_ps);
  }
  longest_spread_ps_ = std::max(longest_spread_ps_, segment.last_ps - segment.first_ps);
  events_.at(at_port ? segment.first_ps : segment.last_ps, at_port ? EventKind::port_arrive : EventKind::nic_arrive,
             index);
}

Picoseconds Network::sighted_until() const { return events_.now() - longest_spread_ps_; }

std::uint32_t Network::store(const Segment& segment) {
  if (unused_segments_.empty()) {
    segments_.push_back(segment);
    return static_cast<std::uint32_t>(segments_.size() - 1);
  }
  const std::uint32_t index = unused_segments_.back();
  unused_segments_.pop_back();
  segments_[index] = segment;
  return index;
}

void Network::discard(std::uint32_t index) { unused_segments_.push_back(index); }

// Packets from..from + count - 1 of a segment.
Segment Network::part_of(const Segment& whole, std::uint32_t from, std::uint32_t count) {
  Segment part = whole;
  const std::uint32_t all = whole.run.count;
  const Picoseconds spacing = all > 1 ? (whole.last_ps - whole.first_ps) / (all - 1) : 0;
  part.run.offset += from;
  part.run.index += from;
  part.run.ip_id = static_cast<std::uint16_t>(part.run.ip_id + from);
  part.run.count = count;
  part.run.ack_request = whole.run.ack_request && from + count == all;
  part.bytes = static_cast<std::uint32_t>(static_cast<std::uint64_t>(whole.bytes) * count / all);
  part.first_ps = whole.first_ps + from * spacing;
  const std::uint32_t steps = count > 0 ? count - 1 : 0;
  part.last_ps = from + count == all ? whole.last_ps : part.first_ps + steps * spacing;
  const Picoseconds left_spacing = all > 1 ? (whole.left_last_ps - whole.left_first_ps) / (all - 1) : 0;
  part.left_first_ps += from * left_spacing;
  part.left_last_ps = part.left_first_ps + steps * left_spacing;
  return part;
}

// How many of `count` packets, evenly spaced between two times, are there by `time_ps`.
std::uint32_t Network::packets_until(Picoseconds first_ps, Picoseconds last_ps, std::uint32_t count,
                                     Picoseconds time_ps) {
  if (first_ps > time_ps) return 0;
  const Picoseconds spacing = count > 1 ? (last_ps - first_ps) / (count - 1) : 0;
  if (spacing == 0) return count;
  return static_cast<std::uint32_t>(std::min<Picoseconds>(count, (time_ps - first_ps) / spacing + 1));
}

// Cuts a segment down to what had left when its NIC or link failed; false = nothing had, the segment is gone.
bool Network::keep_what_left(std::uint32_t index) {
  Segment& segment = segments_[index];
  const Nic& source = nics_[plan_.ends[segment.run.end].nic];
  if (!(source.dead || source.link_down) || segment.left_last_ps <= source.failed_ps) return true;
  const std::uint32_t left =
      packets_until(segment.left_first_ps, segment.left_last_ps, segment.run.count, source.failed_ps);
  dropped_ += segment.run.count - left;
  if (left == 0) {
    discard(index);
    return false;
  }
  segment = part_of(segment, 0, left);
  return true;
}

namespace {

std::uint64_t packets_until_loss(Random& random, double probability) {
  if (probability >= 1.0) return 0;
  // A geometric draw: the floor of an exponential one.
  return static_cast<std::uint64_t>(std::min(random.exponential(-1.0 / std::log1p(-probability)), 1e18));
}

}  // namespace

void Network::begin_loss(Loss& loss, double probability) {
  loss.probability = probability;
  loss.random = Random(derive_seed(plan_.seed, 3, losses_begun_++));
  if (probability > 0) loss.passing = packets_until_loss(loss.random, probability);
}

// Whether a packet of the segment is lost: then `segment` becomes what is ahead of it, `rest` what follows.
bool Network::lose(Loss& loss, Segment& segment, Segment& rest) {
  const std::uint32_t count = segment.run.count;
  if (loss.probability <= 0 || loss.passing >= count) {
    if (loss.probability > 0) loss.passing -= count;
    return false;
  }
  const auto ahead = static_cast<std::uint32_t>(loss.passing);
  rest = part_of(segment, ahead + 1, count - ahead - 1);
  segment = part_of(segment, 0, ahead);
  loss.passing = packets_until_loss(loss.random, loss.probability);
  ++dropped_;
  return true;
}

// A segment begins to fill the buffer at the far end of its link.
void Network::hold(Segment& segment) {
  if (segment.upstream == kNobody) return;
  Buffer& buffer = buffers_[segment.upstream];
  segment.held = true;
  buffer.bytes += segment.bytes;
  if (!buffer.pausing && plan_.network.pause_bytes > 0 && buffer.bytes > plan_.network.pause_bytes) {
    buffer.pausing = true;
    ++pauses_;
    events_.after(link_latency(segment.upstream), EventKind::pause_upstream, segment.upstream);
  }
}

void Network::release(Segment& segment) {
  if (!segment.held) return;
  segment.held = false;
  Buffer& buffer = buffers_[segment.upstream];
  buffer.bytes -= segment.bytes;
  if (buffer.pausing && buffer.bytes < plan_.network.resume_bytes) {
    buffer.pausing = false;
    events_.after(link_latency(segment.upstream), EventKind::resume_upstream, segment.upstream);
  }
}

Picoseconds Network::link_latency(std::uint32_t transmitter) const {
  const std::size_t nics = nics_.size();
  return transmitter < nics ? plan_.nics[transmitter].latency_ps : plan_.ports[transmitter - nics].latency_ps;
}

void Network::set_paused(std::uint32_t transmitter, bool paused) {
  const auto nics = static_cast<std::uint32_t>(nics_.size());
  if (transmitter < nics) {
    nics_[transmitter].paused = paused;
    if (!paused) ask_to_serve(transmitter);
  } else {
    ports_[transmitter - nics].paused = paused;
    if (!paused) ask_port_to_serve(transmitter - nics);
  }
}

}  // namespace pulse::sim
