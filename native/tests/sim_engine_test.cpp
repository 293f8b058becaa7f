// SPDX-License-Identifier: Apache-2.0
//
// Whole small simulations, so that the sanitizers see every layer at work.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "sim/engine.hpp"

namespace {

using namespace pulse::sim;

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kSlots = 6;
constexpr std::uint32_t kSlotBytes = 20'000;
constexpr Picoseconds kMs = 1'000'000'000;

// Four ranks on one switch send `kSlots` slots to the next and take as many from the one before, twice.
Plan ring_plan() {
  Plan plan;
  plan.seed = 5;
  plan.network.pause_bytes = 60'000;
  plan.network.resume_bytes = 40'000;
  plan.network.mark_from_bytes = 30'000;
  plan.network.mark_all_bytes = 90'000;
  plan.network.fetch_jitter_ps = 50'000;
  plan.transport.mtu = 1'024;
  plan.transport.ack_latency_ps = 1'000'000;
  plan.transport.ack_jitter_ps = 500'000;
  plan.transport.timeout_ps = 5 * kMs;
  plan.transport.cnp_interval_ps = 50'000'000;
  plan.transport.alpha_timer_ps = 55'000'000;
  plan.transport.increase_timer_ps = 300'000'000;
  for (std::uint32_t number = 0; number < kRanks; ++number) {
    plan.ports.push_back({.ps_per_byte = 80, .latency_ps = 500'000, .jitter_ps = 20'000});
    plan.nics.push_back({.ps_per_byte = 80, .latency_ps = 900'000, .jitter_ps = 0, .access_port = number});
  }
  for (std::uint32_t number = 0; number < kRanks; ++number) {
    const std::uint32_t next = (number + 1) % kRanks;
    plan.ends.push_back({.nic = number, .peer_nic = next, .dest_qpn = 100 + number});
    plan.ends.push_back({.nic = next, .peer_nic = number, .dest_qpn = 200 + number});
    plan.paths.push_back({.ports = {next}, .hops = 1});
    plan.paths.push_back({.ports = {number}, .hops = 1});
    plan.lanes.push_back({.sender = number, .receiver = next, .first_connection = number});
  }
  for (std::uint32_t number = 0; number < kRanks; ++number) {
    const auto before = static_cast<std::uint32_t>(plan.step_lanes.size());
    plan.step_lanes.push_back((number + kRanks - 1) % kRanks);
    plan.step_lanes.push_back(number);
    const auto first_step = static_cast<std::uint32_t>(plan.steps.size());
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) plan.steps.push_back({before + 1, 0, 1, kSlotBytes});
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) plan.steps.push_back({before, 1, 0, kSlotBytes});
    plan.templates.push_back({static_cast<std::uint32_t>(plan.threads.size()), 2});
    plan.threads.push_back({first_step, kSlots});
    plan.threads.push_back({first_step + kSlots, kSlots});
  }
  plan.meetings.push_back(2);
  for (std::uint32_t number = 0; number < kRanks; ++number) {
    const auto first = static_cast<std::uint32_t>(plan.commands.size());
    for (std::int64_t step = 0; step < 2; ++step) {
      const auto operation = static_cast<std::int64_t>(plan.operations.size());
      plan.operations.push_back({.form = number, .tag = static_cast<std::uint32_t>(step), .stream = 0});
      plan.commands.push_back({step, CommandKind::begin_step});
      plan.commands.push_back({operation, CommandKind::announce});
      plan.commands.push_back({kMs, CommandKind::compute});
      if (number < 2) plan.commands.push_back({0, CommandKind::couple});
      plan.commands.push_back({operation, CommandKind::start});
      plan.commands.push_back({operation, CommandKind::wait_for});
      plan.commands.push_back({0, CommandKind::wait});
      plan.commands.push_back({step, CommandKind::end_step});
    }
    const auto count = static_cast<std::uint32_t>(plan.commands.size()) - first;
    plan.ranks.push_back({.nic = number, .begin_ps = 0, .first_command = first, .commands = count});
  }
  return plan;
}

void add_trigger(Plan& plan, ActionPlan action, Picoseconds delay_ps, std::int32_t operation = -1) {
  TriggerPlan trigger;
  trigger.rank = 1;
  trigger.step = 1;
  trigger.operation = operation;
  trigger.delay_ps = delay_ps;
  trigger.first_action = static_cast<std::uint32_t>(plan.actions.size());
  trigger.actions = 1;
  trigger.onset = true;
  plan.actions.push_back(action);
  plan.triggers.push_back(trigger);
}

constexpr EndRule kLong{.limit_ps = 10'000 * kMs, .tail_ps = kMs};

bool all_consumed(const Engine& engine) {
  const auto slots = engine.library().slot_records();
  return slots.size() == std::size_t{2} * kRanks * kSlots && std::ranges::all_of(slots, [](const SlotRecord& slot) {
           return slot.staged_ps <= slot.posted_ps && slot.posted_ps < slot.delivered_ps &&
                  slot.delivered_ps <= slot.consumed_ps && slot.acknowledged_ps > slot.delivered_ps;
         });
}

TEST("a ring of ranks moves every slot in every manner") {
  for (const std::uint32_t train : {1U, 16U}) {
    for (const CreditVerb verb : {CreditVerb::none, CreditVerb::write, CreditVerb::send, CreditVerb::fetch_add}) {
      Plan plan = ring_plan();
      plan.network.train_packets = train;
      plan.library.credit_verb = verb;
      plan.library.early_credits = train == 1;
      plan.library.empty_immediate = verb != CreditVerb::send;
      plan.transport.coalesce_acks = verb != CreditVerb::write;
      plan.transport.ack_every = verb == CreditVerb::none ? 4 : 0;
      Engine engine(plan, kLong);
      while (engine.advance(engine.now() + kMs, 1'000)) {
      }
      CHECK(engine.library().all_finished());
      CHECK(all_consumed(engine));
      CHECK(engine.network().dropped() == 0);
    }
  }
}

TEST("lost packets are repeated until all is there") {
  for (const std::uint32_t train : {1U, 16U}) {
    for (const ActionKind kind : {ActionKind::loss_before_tap, ActionKind::loss_on_wire, ActionKind::port_loss}) {
      Plan plan = ring_plan();
      plan.network.train_packets = train;
      add_trigger(plan, {.kind = kind, .subject = 2, .value = 0.05}, 0);
      Engine engine(plan, kLong);
      engine.advance(kLong.limit_ps, 1U << 30);
      CHECK(engine.library().all_finished());
      CHECK(all_consumed(engine));
      CHECK(engine.network().dropped() > 0);
      CHECK(engine.transport().retransmitted() > 0);
    }
  }
}

TEST("a slow receiver pauses its sender and loses nothing") {
  Plan plan = ring_plan();
  add_trigger(plan, {.kind = ActionKind::drain_rate, .subject = 2, .value = 8}, 0);
  Engine engine(plan, kLong);
  engine.advance(kLong.limit_ps, 1U << 30);
  CHECK(engine.library().all_finished());
  CHECK(engine.network().pauses() > 0);
  CHECK(engine.network().dropped() == 0);
}

TEST("a dead link ends in an error of its connections") {
  Plan plan = ring_plan();
  plan.transport.retry_limit = 3;
  add_trigger(plan, {.kind = ActionKind::link_down, .subject = 2}, kMs / 200, 0);
  Engine engine(plan, {.limit_ps = 1'000 * kMs, .tail_ps = kMs, .watch_ps = 100 * kMs});
  while (engine.advance(engine.now() + 10 * kMs, 1U << 30)) {
  }
  CHECK(!engine.library().all_finished());
  CHECK(!engine.library().failed_ends().empty());
  CHECK(engine.now() == engine.library().onset_ps() + 100 * kMs);
}

TEST("a crashed rank is silent and the rest waits") {
  Plan plan = ring_plan();
  add_trigger(plan, {.kind = ActionKind::rank_crash, .subject = 1}, kMs / 200, 0);
  Engine engine(plan, {.limit_ps = 1'000 * kMs, .tail_ps = kMs, .watch_ps = 50 * kMs});
  engine.advance(1'000 * kMs, 1U << 30);
  CHECK(!engine.library().all_finished());
}

TEST("foreign traffic leaves marks and notifications") {
  Plan plan = ring_plan();
  add_trigger(plan, {.kind = ActionKind::foreign_load, .subject = 2, .value = 0.9, .extra = 16'384}, 0);
  Engine engine(plan, kLong);
  engine.advance(kLong.limit_ps, 1U << 30);
  CHECK(engine.library().all_finished());
  CHECK(engine.network().marks() > 0);
  CHECK(engine.transport().notifications() > 0);
}

std::string refusal(const Plan& plan) {
  try {
    const Engine engine(plan, kLong);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST("a plan that refers to nothing or cannot run is refused by name") {
  const auto refused = [](auto spoil) {
    Plan plan = ring_plan();
    spoil(plan);
    return refusal(plan);
  };
  CHECK_EQ(refusal(ring_plan()), std::string());
  CHECK_EQ(refused([](Plan& plan) { plan.lanes[2].receiver = kRanks; }),
           std::string("rank of lane 2 refers to nothing"));
  CHECK(!refused([](Plan& plan) { plan.operations[0].stream = 0xffff'ffff; }).empty());
  CHECK(!refused([](Plan& plan) { plan.templates[1].threads = 0; }).empty());
  CHECK(!refused([](Plan& plan) { plan.threads[0].steps = 0; }).empty());
  CHECK(!refused([](Plan& plan) { plan.steps[0].sends = 2; }).empty());
  CHECK(!refused([](Plan& plan) { plan.transport.mtu = 0; }).empty());
  CHECK(!refused([](Plan& plan) { plan.nics[0].ps_per_byte = -1; }).empty());
  CHECK(!refused([](Plan& plan) { plan.commands.front().kind = CommandKind::end_step; }).empty());
  CHECK(!refused([](Plan& plan) { add_trigger(plan, {.kind = static_cast<ActionKind>(99)}, 0); }).empty());
  CHECK(!refused([](Plan& plan) { add_trigger(plan, {.kind = ActionKind::port_rate, .subject = 99}, 0); }).empty());
  CHECK(!refused([](Plan& plan) {
           add_trigger(plan, {.kind = ActionKind::foreign_load, .value = 0.5, .extra = 0}, 0);
         }).empty());
}

}  // namespace
