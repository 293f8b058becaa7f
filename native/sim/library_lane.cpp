// SPDX-License-Identifier: Apache-2.0
//
// Lanes: slots one way, credits the other. The receiver grants slots, the sender
// fills granted ones, and a slot is free again when the receiver's GPU has read it.
#include <algorithm>

#include "sim/library.hpp"

namespace pulse::sim {

namespace {

constexpr std::uint64_t kCreditArea = 1ULL << 30;  // credits live apart from the slots
constexpr std::uint32_t kCreditDistance = 64;
constexpr std::uint32_t kCreditKey = 0x100;
constexpr std::uint32_t kAtomicBytes = 8;
constexpr std::uint64_t kInjectionAddress = 1ULL << 40;

constexpr double kBusyPart = 4;

}  // namespace

// What is asked for while the thread is away is done in one go when it comes back: only a part of the fixed
// reaction time keeps it busy, the rest is latency.
void Library::ask_host(std::uint32_t rank, HostWork work, std::uint32_t lane, std::uint32_t number) {
  Host& host = ranks_[rank].host;
  double delay = plan_.library.host_ps + host.random.exponential(plan_.library.host_jitter_ps);
  if (host.hold_probability > 0 && host.hold_random.chance(host.hold_probability)) {
    delay += host.hold_random.exponential(host.hold_ps);
  }
  const auto delay_ps = static_cast<Picoseconds>(delay);
  host.free_ps =
      std::max(events_.now() + delay_ps, host.free_ps + static_cast<Picoseconds>(plan_.library.host_ps / kBusyPart));
  events_.at(host.free_ps, EventKind::host_action, static_cast<std::uint32_t>(work) << kLaneBits | lane, number);
}

void Library::do_host_work(HostWork work, std::uint32_t lane_number, std::uint32_t slot) {
  const LanePlan& plan = plan_.lanes[lane_number];
  const bool receiver = work == HostWork::post_credit || work == HostWork::announce_arrival;
  if (ranks_[receiver ? plan.receiver : plan.sender].stopped) return;
  Lane& lane = lanes_[lane_number];
  switch (work) {
    case HostWork::post_slot:
      return post_slot(lane_number, slot);
    case HostWork::post_credit:
      return post_credit(lane_number, slot);
    case HostWork::use_credit:
      ++lane.credits;
      return push(lane_number);
    case HostWork::announce_arrival:
      lane.slots[slot].here = 1;
      if (lane.receive_running != kNobody) try_thread(lane.receive_running, lane.receive_thread);
      return;
    case HostWork::free_buffer:
      return free_buffer(lane_number);
  }
}

// ---- sender

// The GPU has filled a slot; it goes out once the receiver has granted one.
void Library::stage(std::uint32_t number, std::uint32_t bytes, std::uint32_t tag) {
  Lane& lane = lanes_[number];
  SlotRecord record;
  record.lane = number;
  record.bytes = bytes;
  record.tag = tag;
  record.staged_ps = events_.now();
  lane.slots.push_back(record);
  ++lane.staged;
  ++lane.unacknowledged;
  ++running_[lane.send_running].unacknowledged;
  push(number);
}

void Library::push(std::uint32_t number) {
  Lane& lane = lanes_[number];
  const bool granting = plan_.library.credit_verb != CreditVerb::none;
  while (lane.posted < lane.staged && (lane.credits > 0 || !granting)) {
    if (granting) --lane.credits;
    ask_host(plan_.lanes[number].sender, HostWork::post_slot, number, lane.posted++);
  }
}

void Library::post_slot(std::uint32_t number, std::uint32_t slot) {
  const LanePlan& plan = plan_.lanes[number];
  SlotRecord& record = lanes_[number].slots[slot];
  record.posted_ps = events_.now();
  const std::uint32_t parts = plan_.library.split_slots ? std::min(plan.connections, record.bytes) : 1;
  record.parts_missing = record.parts_unacknowledged = parts;
  const Purpose purpose{Purpose::Kind::slot, number, slot};
  for (std::uint32_t part = 0; part < parts; ++part) {
    const std::uint32_t connection = plan.first_connection + (parts > 1 ? part : slot % plan.connections);
    const auto share = [&](std::uint32_t upto) {
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(record.bytes) * upto / parts);
    };
    Message message;
    message.verb = plan_.library.empty_immediate ? Verb::write : Verb::write_imm;
    message.bytes = share(part + 1) - share(part);
    message.address = plan.address + slot % plan_.library.depth * std::uint64_t{plan.slot_bytes} + share(part);
    message.remote_key = plan.remote_key;
    message.immediate = record.bytes;
    message.purpose = purpose;
    if (plan_.library.empty_immediate) {
      message.purpose = {};
      transport_.post(2 * connection, message);
      message = Message{};
      message.verb = Verb::write_imm;
      message.immediate = record.bytes;
      message.purpose = purpose;
    }
    transport_.post(2 * connection, message);
  }
}

void Library::free_buffer(std::uint32_t number) {
  Lane& lane = lanes_[number];
  const std::uint32_t running = lane.send_running;
  --lane.unacknowledged;
  --running_[running].unacknowledged;
  try_thread(running, lane.send_thread);
  check_end(running);
}

// ---- receiver

// The receiver will take so many more slots; grants as many as fit into the window.
void Library::expect(std::uint32_t number, std::uint32_t slots) {
  lanes_[number].expected += slots;
  grant(number);
}

void Library::grant(std::uint32_t number) {
  if (plan_.library.credit_verb == CreditVerb::none) return;
  Lane& lane = lanes_[number];
  const std::uint64_t window = std::min<std::uint64_t>(lane.expected, lane.consumed + plan_.library.depth);
  while (lane.granted < window) {
    ask_host(plan_.lanes[number].receiver, HostWork::post_credit, number, static_cast<std::uint32_t>(lane.granted++));
  }
}

void Library::post_credit(std::uint32_t number, std::uint32_t credit) {
  const LanePlan& plan = plan_.lanes[number];
  const CreditVerb verb = plan_.library.credit_verb;
  Message message;
  message.verb = verb == CreditVerb::fetch_add ? Verb::fetch_add : verb == CreditVerb::send ? Verb::send : Verb::write;
  message.bytes = verb == CreditVerb::fetch_add ? kAtomicBytes : plan_.library.credit_bytes;
  message.address = plan.address + kCreditArea + credit % plan_.library.depth * std::uint64_t{kCreditDistance};
  message.remote_key = plan.remote_key ^ kCreditKey;
  message.purpose = {Purpose::Kind::credit, number, credit};
  lanes_[number].credit_record.push_back(static_cast<std::uint32_t>(credit_records_.size()));
  credit_records_.push_back({number, credit, events_.now(), kNever});
  transport_.post(2 * (plan.first_connection + credit % plan.connections) + 1, message);
}

// ---- what the connections tell

void Library::delivered(const Purpose& purpose) {
  const LanePlan* plan = purpose.kind == Purpose::Kind::slot || purpose.kind == Purpose::Kind::credit
                             ? &plan_.lanes[purpose.subject]
                             : nullptr;
  if (plan == nullptr) return;
  Lane& lane = lanes_[purpose.subject];
  if (purpose.kind == Purpose::Kind::credit) {
    credit_records_[lane.credit_record[purpose.number]].arrived_ps = events_.now();
    ask_host(plan->sender, HostWork::use_credit, purpose.subject, 0);
    return;
  }
  SlotRecord& record = lane.slots[purpose.number];
  if (--record.parts_missing > 0) return;
  record.delivered_ps = events_.now();
  ask_host(plan->receiver, HostWork::announce_arrival, purpose.subject, purpose.number);
}

void Library::acknowledged(const Purpose& purpose) {
  if (purpose.kind == Purpose::Kind::injection) {
    const InjectionPlan& plan = plan_.injections[purpose.subject];
    if (posted_[purpose.subject] < plan.messages) inject(purpose.subject);
    return;
  }
  if (purpose.kind != Purpose::Kind::slot) return;
  SlotRecord& record = lanes_[purpose.subject].slots[purpose.number];
  if (--record.parts_unacknowledged > 0) return;
  record.acknowledged_ps = events_.now();
  ask_host(plan_.lanes[purpose.subject].sender, HostWork::free_buffer, purpose.subject, 0);
}

void Library::inject(std::uint32_t number) {
  const InjectionPlan& plan = plan_.injections[number];
  ++posted_[number];
  Message message;
  message.verb = plan.verb;
  message.bytes = plan.bytes;
  message.address = kInjectionAddress;
  message.remote_key = number + 1;
  message.purpose = {Purpose::Kind::injection, number, 0};
  transport_.post(plan.end, message);
}

std::vector<SlotRecord> Library::slot_records() const {
  std::vector<SlotRecord> all;
  for (const Lane& lane : lanes_) all.insert(all.end(), lane.slots.begin(), lane.slots.end());
  return all;
}

}  // namespace pulse::sim
