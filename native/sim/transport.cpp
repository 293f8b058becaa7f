// SPDX-License-Identifier: Apache-2.0
#include "sim/transport.hpp"

#include <algorithm>
#include <stdexcept>

namespace pulse::sim {

namespace {

constexpr std::uint32_t kFramingBytes = 24;  // FCS, preamble and inter-frame gap: on the wire, in no capture
constexpr std::uint32_t kBthBytes = 12;
constexpr std::uint32_t kIcrcBytes = 4;
constexpr std::uint32_t kRethBytes = 16;
constexpr std::uint32_t kImmediateBytes = 4;
constexpr std::uint32_t kAethBytes = 4;
constexpr std::uint32_t kAtomicEthBytes = 28;
constexpr std::uint32_t kAtomicAckBytes = 8;
constexpr std::uint32_t kCnpBytes = 16;
constexpr std::uint8_t kSyndromeAck = 0x1f;
constexpr std::uint8_t kSyndromeNakSequence = 0x60;

std::uint32_t response_bytes(Verb verb) {
  switch (verb) {
    case Verb::atomic_ack:
      return kAethBytes + kAtomicAckBytes;
    case Verb::cnp:
      return kCnpBytes;
    default:
      return kAethBytes;
  }
}

}  // namespace

Transport::Transport(const Plan& plan, EventQueue& events, TransportUser& user)
    : plan_(plan), events_(events), user_(user), ends_(plan.ends.size()) {
  for (std::uint32_t number = 0; number < ends_.size(); ++number) {
    ends_[number].random = Random(derive_seed(plan.seed, 10, number));
  }
}

void Transport::on_event(const Event& event) {
  switch (event.kind()) {
    case EventKind::rate_wake:
      ends_[event.subject].wake_pending = false;
      network_->wake(event.subject);
      return;
    case EventKind::send_acknowledge:
      return send_acknowledge(event.subject);
    case EventKind::retry_timer:
      return on_timer(event.subject);
    default:
      throw std::logic_error("an event of another layer came to the transport");
  }
}

// ---- requester

void Transport::post(std::uint32_t number, Message message) {
  End& end = ends_[number];
  if (end.failed) return;
  const std::uint32_t mtu = plan_.transport.mtu;
  message.packets = message.verb == Verb::fetch_add ? 1 : std::max<std::uint32_t>(1, (message.bytes + mtu - 1) / mtu);
  message.first_index = end.tail;
  end.tail += message.packets;
  end.queue.push_back(message);
  network_->wake(number);
}

void Transport::destroy(std::uint32_t number) {
  ends_[number].failed = true;
  ends_[number].queue.clear();
}

bool Transport::next_segment(std::uint32_t number, std::uint32_t packets, Segment& segment) {
  End& end = ends_[number];
  if (end.next >= end.tail || end.failed) return false;
  const Picoseconds now = events_.now();
  if (end.eligible_ps > now) {
    if (!end.wake_pending) {
      end.wake_pending = true;
      events_.at(end.eligible_ps, EventKind::rate_wake, number);
    }
    return false;
  }
  const Message& message = end.queue[end.cursor];
  const auto offset = static_cast<std::uint32_t>(end.next - message.first_index);
  const std::uint32_t count = std::min(packets, message.packets - offset);
  fill(number, message, offset, count, segment);
  if (end.next < end.highest_sent) retransmitted_ += std::min<std::uint64_t>(count, end.highest_sent - end.next);
  end.next += count;
  end.highest_sent = std::max(end.highest_sent, end.next);
  if (offset + count == message.packets) ++end.cursor;
  pace(end, number, segment.bytes);
  end.deadline_ps = now + plan_.transport.timeout_ps;
  arm_timer(number);
  return true;
}

bool Transport::has_more(std::uint32_t number) const {
  return ends_[number].next < ends_[number].tail && !ends_[number].failed;
}

// Packets offset .. offset + count - 1 of a message as a segment of end `number`.
void Transport::fill(std::uint32_t number, const Message& message, std::uint32_t offset, std::uint32_t count,
                     Segment& segment) {
  const std::uint32_t mtu = plan_.transport.mtu;
  const bool last = offset + count == message.packets;
  const bool atomic = message.verb == Verb::fetch_add;
  PacketRun& run = segment.run;
  run = PacketRun{};
  run.index = message.first_index + offset;
  run.address = message.address;
  run.end = number;
  run.remote_key = message.remote_key;
  run.immediate = message.immediate;
  run.message_bytes = message.bytes;
  run.message_packets = message.packets;
  run.offset = offset;
  run.count = count;
  run.verb = message.verb;
  run.ack_request = asks_for_ack(offset, count, message.packets);
  const std::uint32_t each = plan_.network.header_bytes + kBthBytes + kIcrcBytes + kFramingBytes;
  const auto padded = [](std::uint32_t bytes) { return (bytes + 3U) & ~3U; };
  const std::uint32_t rest = message.bytes - std::min(message.bytes, offset * mtu);
  const std::uint32_t payload = atomic ? 0 : padded(last ? rest : count * mtu);
  const bool writes = message.verb == Verb::write || message.verb == Verb::write_imm;
  const std::uint32_t first_extra = atomic ? kAtomicEthBytes : (offset == 0 && writes ? kRethBytes : 0);
  const std::uint32_t last_extra = last && message.verb == Verb::write_imm ? kImmediateBytes : 0;
  segment.purpose = message.purpose;
  segment.bytes = count * each + payload + first_extra + last_extra;
  segment.packet_bytes = count == 1 ? segment.bytes : each + first_extra + std::min(mtu, payload);
}

bool Transport::asks_for_ack(std::uint32_t offset, std::uint32_t count, std::uint32_t packets) const {
  if (offset + count == packets) return true;
  const std::uint32_t every = plan_.transport.ack_every;
  return every > 0 && (offset + count) / every > offset / every;
}

void Transport::arm_timer(std::uint32_t number) {
  End& end = ends_[number];
  if (end.timer_armed) return;
  end.timer_armed = true;
  events_.at(end.deadline_ps, EventKind::retry_timer, number);
}

void Transport::on_timer(std::uint32_t number) {
  End& end = ends_[number];
  end.timer_armed = false;
  if (end.failed || end.acked >= end.highest_sent) return;
  const Picoseconds now = events_.now();
  const Picoseconds timeout = plan_.transport.timeout_ps;
  if (now < end.deadline_ps || end.next < end.highest_sent) {  // progress, or still repeating
    end.deadline_ps = std::max(end.deadline_ps, now + timeout / 8);
    arm_timer(number);
    return;
  }
  if (++end.retries > plan_.transport.retry_limit) {
    end.failed = true;
    user_.connection_failed(number);
    return;
  }
  end.deadline_ps = now + timeout;
  arm_timer(number);
  go_back(number);
}

// Everything up to the response's index has arrived; of a NAK: everything before it.
void Transport::on_response(End& end, std::uint32_t number, const PacketRun& run) {
  const bool nak = run.verb == Verb::acknowledge && run.syndrome == kSyndromeNakSequence;
  const std::uint64_t upto = nak ? run.index : run.index + 1;
  if (upto > end.acked) {
    end.acked = upto;
    end.retries = 0;
    end.deadline_ps = events_.now() + plan_.transport.timeout_ps;
    release(end);
  }
  if (nak) go_back(number);
}

void Transport::release(End& end) {
  while (!end.queue.empty() && end.queue.front().first_index + end.queue.front().packets <= end.acked) {
    const Message message = end.queue.pop_front();
    if (end.cursor > 0) --end.cursor;
    user_.acknowledged(message.purpose);
  }
  if (end.next < end.acked) {  // an old copy was acknowledged while we were repeating
    end.next = end.acked;
    end.cursor = 0;
  }
}

void Transport::go_back(std::uint32_t number) {
  End& end = ends_[number];
  if (end.next <= end.acked) return;
  end.next = end.acked;
  end.cursor = 0;
  network_->wake(number);
}

// ---- responder

void Transport::receive(const Segment& segment) {
  const std::uint32_t number = segment.run.end ^ 1U;
  End& end = ends_[number];
  if (end.failed) return;
  switch (segment.run.verb) {
    case Verb::cnp:
      return cut_rate(end.rate);
    case Verb::acknowledge:
    case Verb::atomic_ack:
      return on_response(end, number, segment.run);
    default:
      return on_request(number, segment);
  }
}

void Transport::on_request(std::uint32_t number, const Segment& segment) {
  End& end = ends_[number];
  const PacketRun& run = segment.run;
  if (run.congestion_mark) notify_congestion(number);
  if (run.index > end.expected) {
    if (!end.nak_sent) {
      end.nak_sent = true;
      respond(number, Verb::acknowledge, {end.expected, end.msn}, kSyndromeNakSequence);
    }
    return;
  }
  if (run.index + run.count <= end.expected) {  // a repetition: the answer was lost, or came too late
    if (run.verb == Verb::fetch_add) {
      respond(number, Verb::atomic_ack, {run.index, end.msn}, kSyndromeAck);
    } else {
      acknowledge(number);
    }
    return;
  }
  end.expected = run.index + run.count;
  end.nak_sent = false;
  if (run.offset + run.count == run.message_packets) {
    end.msn = (end.msn + 1) & 0xff'ffffU;
    user_.delivered(segment.purpose);
  }
  if (run.verb == Verb::fetch_add) {
    respond(number, Verb::atomic_ack, {run.index, end.msn}, kSyndromeAck);
  } else if (run.ack_request) {
    acknowledge(number);
  }
}

void Transport::acknowledge(std::uint32_t number) {
  End& end = ends_[number];
  const TransportPlan& transport = plan_.transport;
  if (transport.coalesce_acks) {
    if (end.ack_pending) return;
    end.ack_pending = true;
  } else {
    end.answers.push_back({end.expected - 1, end.msn});
  }
  const auto jitter = static_cast<Picoseconds>(end.random.exponential(transport.ack_jitter_ps));
  end.previous_ack_ps = std::max(end.previous_ack_ps, events_.now() + transport.ack_latency_ps + jitter);
  events_.at(end.previous_ack_ps, EventKind::send_acknowledge, number);
}

// Answers everything that has come, or what the next answer in order is for.
void Transport::send_acknowledge(std::uint32_t number) {
  End& end = ends_[number];
  end.ack_pending = false;
  if (end.failed) return;
  const bool coalesced = plan_.transport.coalesce_acks;
  const Answer answer = coalesced ? Answer{end.expected - 1, end.msn} : end.answers.pop_front();
  respond(number, Verb::acknowledge, answer, kSyndromeAck);
}

void Transport::respond(std::uint32_t number, Verb verb, const Answer& answer, std::uint8_t syndrome) {
  Segment segment;
  segment.run.end = number;
  segment.run.verb = verb;
  segment.run.index = answer.index;
  segment.run.syndrome = syndrome;
  segment.run.msn = answer.msn;
  segment.bytes = plan_.network.header_bytes + kBthBytes + kIcrcBytes + kFramingBytes + response_bytes(verb);
  segment.packet_bytes = segment.bytes;
  network_->send_response(segment);
}

void Transport::notify_congestion(std::uint32_t number) {
  End& end = ends_[number];
  const Picoseconds now = events_.now();
  if (end.previous_cnp_ps >= 0 && now - end.previous_cnp_ps < plan_.transport.cnp_interval_ps) return;
  end.previous_cnp_ps = now;
  ++notifications_;
  respond(number, Verb::cnp, {}, 0);
}

}  // namespace pulse::sim
