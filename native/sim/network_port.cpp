// SPDX-License-Identifier: Apache-2.0
//
// Switch ports: queues, marks, and traffic that belongs to others.
#include <algorithm>

#include "sim/network.hpp"

namespace pulse::sim {

namespace {

// Packets up to this size, such as ACKs and credits, are no competition.
constexpr std::uint32_t kSmallPacketBytes = 300;
// How long inputs count as competing after one had to wait for another, as bytes of the port.
constexpr double kCompetitionBytes = 262'144;
constexpr std::uint64_t kForeignBacklogBursts = 200;  // foreign senders slow down as well

bool is_data(const Segment& segment) { return segment.run.verb < Verb::acknowledge && segment.run.count > 0; }

}  // namespace

void Network::arrive_at_port(std::uint32_t index) {
  const std::uint32_t number = next_port(segments_[index]);
  if (!keep_what_left(index)) return;
  if (ports_[number].off) {
    dropped_ += segments_[index].run.count;
    discard(index);
    return;
  }
  Segment rest;
  Segment ahead = segments_[index];
  if (lose(ports_[number].loss, ahead, rest)) {
    if (rest.run.count > 0) events_.at(rest.first_ps, EventKind::port_arrive, store(rest));
    if (ahead.run.count == 0) {
      discard(index);
      return;
    }
    segments_[index] = ahead;
  }
  const Port& port = ports_[number];
  if (port.queued_bytes == 0 && !port.paused && port.free_ps <= events_.now()) {
    send_from_port(number, index, false);
  } else if (may_slip_through(port, segments_[index])) {
    send_from_port(number, index, true);
  } else {
    enqueue(number, index);
  }
}

// A single packet of another input goes between the packets of the train that the port is sending.
bool Network::may_slip_through(const Port& port, const Segment& segment) {
  return port.train_packet_ps > 0 && port.queued_bytes == 0 && !port.paused && segment.run.count == 1 &&
         segment.upstream != port.served;
}

void Network::drop_queue(std::uint32_t number) {
  Port& port = ports_[number];
  for (Input& input : port.inputs) {
    while (!input.segments.empty()) {
      const std::uint32_t index = input.segments.pop_front();
      release(segments_[index]);
      dropped_ += segments_[index].run.count;
      discard(index);
    }
  }
  port.queued_bytes = 0;
}

void Network::enqueue(std::uint32_t number, std::uint32_t index) {
  Port& port = ports_[number];
  Segment& segment = segments_[index];
  if (port.served != kNobody && segment.upstream != port.served && segment.packet_bytes > kSmallPacketBytes) {
    port.contended_until_ps = events_.now() + static_cast<Picoseconds>(kCompetitionBytes * port.ps_per_byte);
  }
  const std::uint64_t limit = plan_.network.queue_bytes;
  if (limit > 0 && port.queued_bytes + segment.bytes > limit) {
    dropped_ += segment.run.count;
    discard(index);
    return;
  }
  mark(port, segment);
  port.queued_bytes += segment.bytes;
  hold(segment);
  const auto same = [&](const Input& input) { return input.upstream == segment.upstream; };
  auto input = std::ranges::find_if(port.inputs, same);
  if (input == port.inputs.end()) {
    port.inputs.push_back({segment.upstream, {}});
    input = port.inputs.end() - 1;
  }
  input->segments.push_back(index);
  ask_port_to_serve(number);
}

// Random early detection as DCQCN configures it: never below the first threshold, always above the second.
void Network::mark(Port& port, Segment& segment) {
  const NetworkPlan& network = plan_.network;
  if (network.mark_from_bytes == 0 || port.queued_bytes <= network.mark_from_bytes || !is_data(segment)) return;
  double probability = 1.0;
  if (port.queued_bytes < network.mark_all_bytes) {
    probability = network.mark_probability * static_cast<double>(port.queued_bytes - network.mark_from_bytes) /
                  static_cast<double>(network.mark_all_bytes - network.mark_from_bytes);
  }
  if (port.random.uniform() >= std::min(1.0, probability * segment.run.count)) return;
  segment.run.congestion_mark = true;
  ++marks_;
}

void Network::ask_port_to_serve(std::uint32_t number) {
  Port& port = ports_[number];
  if (port.serve_asked || port.paused || port.queued_bytes == 0) return;
  port.serve_asked = true;
  events_.at(port.free_ps, EventKind::port_serve, number);
}

void Network::serve_port(std::uint32_t number) {
  Port& port = ports_[number];
  port.serve_asked = false;
  if (port.paused || port.queued_bytes == 0) return;
  if (port.free_ps > events_.now()) {
    ask_port_to_serve(number);
    return;
  }
  while (port.inputs[port.turn % port.inputs.size()].segments.empty()) ++port.turn;
  port.turn %= static_cast<std::uint32_t>(port.inputs.size());
  const std::uint32_t index = port.inputs[port.turn].segments.pop_front();
  ++port.turn;
  port.queued_bytes -= segments_[index].bytes;
  send_from_port(number, index, false);
  ask_port_to_serve(number);
}

void Network::send_from_port(std::uint32_t number, std::uint32_t index, bool between) {
  Port& port = ports_[number];
  Segment& segment = segments_[index];
  release(segment);
  Picoseconds now = events_.now();
  const auto work = static_cast<Picoseconds>(segment.bytes * port.ps_per_byte);
  if (between) {
    now += (port.free_ps - now) % port.train_packet_ps;  // the packet on the wire has left
    port.free_ps += work;
  } else {
    port.free_ps = now + work;
    if (segment.packet_bytes > kSmallPacketBytes) port.served = segment.upstream;
    port.train_packet_ps =
        segment.run.count > 1 ? static_cast<Picoseconds>(segment.packet_bytes * port.ps_per_byte) : 0;
  }
  if (segment.run.count == 0) {  // foreign traffic ends here
    discard(index);
    return;
  }
  const auto packet = static_cast<Picoseconds>(segment.packet_bytes * port.ps_per_byte);
  Picoseconds extra = plan_.ports[number].latency_ps;
  if (plan_.ports[number].jitter_ps > 0) {
    extra += static_cast<Picoseconds>(port.random.uniform() * static_cast<double>(plan_.ports[number].jitter_ps));
  }
  // A slower train takes its own time; between its packets the port serves others.
  segment.last_ps = std::max(now + work, segment.last_ps + packet) + extra;
  segment.first_ps = std::max(now + packet + extra, port.previous_arrival_ps);
  segment.last_ps = std::max(segment.last_ps, segment.first_ps);
  port.previous_arrival_ps = segment.first_ps;
  ++segment.hop;
  segment.upstream = static_cast<std::uint32_t>(nics_.size()) + number;
  forward(index);
}

void Network::start_foreign_load(const ActionPlan& action) {
  if (action.value <= 0) {  // the others of this port fall silent
    for (ForeignLoad& load : loads_) {
      if (load.port == action.subject) load.share = 0;
    }
    return;
  }
  ForeignLoad load;
  load.port = action.subject;
  load.share = action.value;
  load.burst_bytes = static_cast<std::uint32_t>(action.extra);
  load.random = Random(derive_seed(plan_.seed, 4, static_cast<std::uint32_t>(loads_.size())));
  loads_.push_back(load);
  burst(static_cast<std::uint32_t>(loads_.size() - 1));
}

// A burst of packets that no tap sees, and the time of the next one; its strength changes now and then.
void Network::burst(std::uint32_t number) {
  ForeignLoad& load = loads_[number];
  if (load.share <= 0) return;
  if (load.until_change == 0) {
    load.level = 0.75 + 0.5 * load.random.uniform();
    load.until_change = 50 + static_cast<std::uint32_t>(load.random.below(350));
  }
  --load.until_change;
  const double mean_ps = load.burst_bytes * ports_[load.port].ps_per_byte / (load.share * load.level);
  if (ports_[load.port].queued_bytes < kForeignBacklogBursts * load.burst_bytes) {
    Segment segment;
    segment.run.count = 0;
    segment.bytes = load.burst_bytes;
    segment.upstream = kNobody;
    enqueue(load.port, store(segment));
  }
  events_.after(static_cast<Picoseconds>(load.random.exponential(mean_ps)) + 1, EventKind::foreign_burst, number);
}

}  // namespace pulse::sim
