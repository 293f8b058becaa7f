// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <string>

#include "sim/engine.hpp"

namespace pulse::sim {

namespace {

void require(bool holds, const std::string& what, std::size_t number) {
  if (!holds) throw std::invalid_argument(what + " " + std::to_string(number) + " refers to nothing");
}

bool fits(std::uint64_t first, std::uint64_t count, std::size_t size) { return first + count <= size; }

void require_positive(std::int64_t value, const std::string& what) {
  if (value <= 0) throw std::invalid_argument(what + " must be positive");
}

void check_settings(const Plan& plan) {
  require_positive(plan.network.train_packets, "train_packets");
  require_positive(plan.network.quantum_packets, "quantum_packets");
  require_positive(plan.transport.mtu, "mtu");
  require_positive(plan.transport.timeout_ps, "timeout_ps");
  require_positive(plan.library.depth, "depth");
  if (plan.network.mark_from_bytes > 0) {
    require_positive(plan.transport.alpha_timer_ps, "alpha_timer_ps");
    require_positive(plan.transport.increase_timer_ps, "increase_timer_ps");
  }
  if (plan.network.pause_bytes > 0) {
    require_positive(static_cast<std::int64_t>(plan.network.resume_bytes), "resume_bytes");
  }
  for (std::size_t number = 0; number < plan.ports.size(); ++number) {
    if (!(plan.ports[number].ps_per_byte > 0)) throw std::invalid_argument("ps_per_byte of a port must be positive");
  }
  for (std::size_t number = 0; number < plan.nics.size(); ++number) {
    if (!(plan.nics[number].ps_per_byte > 0)) throw std::invalid_argument("ps_per_byte of a NIC must be positive");
  }
}

// How many things there are of the kind that an action changes.
std::size_t subjects(const Plan& plan, ActionKind kind) {
  switch (kind) {
    case ActionKind::port_rate:
    case ActionKind::port_loss:
    case ActionKind::foreign_load:
      return plan.ports.size();
    case ActionKind::rank_stop:
    case ActionKind::rank_crash:
    case ActionKind::host_hold:
      return plan.ranks.size();
    case ActionKind::pin_path:
      return plan.ends.size();
    default:
      return plan.nics.size();
  }
}

void check_actions(const Plan& plan) {
  for (std::size_t number = 0; number < plan.actions.size(); ++number) {
    const ActionPlan& action = plan.actions[number];
    require(action.subject < subjects(plan, action.kind), "subject of action", number);
    const bool leads = action.kind != ActionKind::pin_path ||
                       (action.extra >= 0 && static_cast<std::size_t>(action.extra) < plan.paths.size());
    require(leads, "path of action", number);
  }
}

void check_devices(const Plan& plan) {
  for (std::size_t number = 0; number < plan.nics.size(); ++number) {
    require(plan.nics[number].access_port < plan.ports.size(), "access port of NIC", number);
  }
  require(plan.ends.size() % 2 == 0 && plan.paths.size() >= plan.ends.size(), "path of end", plan.paths.size());
  for (std::size_t number = 0; number < plan.ends.size(); ++number) {
    const EndAddress& end = plan.ends[number];
    require(end.nic < plan.nics.size() && end.peer_nic < plan.nics.size(), "NIC of end", number);
  }
  for (std::size_t number = 0; number < plan.paths.size(); ++number) {
    const Path& path = plan.paths[number];
    require(path.hops <= kMaxHops, "hops of path", number);
    for (std::uint32_t hop = 0; hop < path.hops; ++hop) {
      require(path.ports[hop] < plan.ports.size(), "port of path", number);
    }
  }
}

void check_operations(const Plan& plan) {
  for (std::size_t number = 0; number < plan.lanes.size(); ++number) {
    const LanePlan& lane = plan.lanes[number];
    require(lane.sender < plan.ranks.size() && lane.receiver < plan.ranks.size(), "rank of lane", number);
    require(lane.connections > 0 && fits(lane.first_connection, lane.connections, plan.ends.size() / 2),
            "connection of lane", number);
  }
  for (std::size_t number = 0; number < plan.step_lanes.size(); ++number) {
    require(plan.step_lanes[number] < plan.lanes.size(), "lane of step", number);
  }
  for (std::size_t number = 0; number < plan.steps.size(); ++number) {
    const StepPlan& step = plan.steps[number];
    require(fits(step.first_receive, step.receives + step.sends, plan.step_lanes.size()), "step", number);
  }
  for (std::size_t number = 0; number < plan.threads.size(); ++number) {
    require(fits(plan.threads[number].first_step, plan.threads[number].steps, plan.steps.size()), "thread", number);
  }
  for (std::size_t number = 0; number < plan.templates.size(); ++number) {
    const TemplatePlan& form = plan.templates[number];
    require(fits(form.first_thread, form.threads, plan.threads.size()), "template", number);
  }
  for (std::size_t number = 0; number < plan.operations.size(); ++number) {
    require(plan.operations[number].form < plan.templates.size(), "template of operation", number);
  }
}

void check_programs(const Plan& plan) {
  for (std::size_t number = 0; number < plan.ranks.size(); ++number) {
    const RankPlan& rank = plan.ranks[number];
    require(rank.nic < plan.nics.size(), "NIC of rank", number);
    require(fits(rank.first_command, rank.commands, plan.commands.size()), "program of rank", number);
    bool begun = false;
    for (std::uint32_t place = 0; place < rank.commands; ++place) {
      const CommandKind kind = plan.commands[rank.first_command + place].kind;
      begun = begun || kind == CommandKind::begin_step;
      require(begun || kind != CommandKind::end_step, "first end_step of rank", number);
    }
  }
  std::uint32_t streams = 1;
  for (const OperationPlan& operation : plan.operations) streams = std::max(streams, operation.stream + 1);
  for (std::size_t number = 0; number < plan.commands.size(); ++number) {
    const Command& command = plan.commands[number];
    const bool names = command.kind == CommandKind::start || command.kind == CommandKind::announce ||
                       command.kind == CommandKind::wait_for;
    const bool meets = command.kind == CommandKind::couple;
    require(command.value >= -1, "value of command", number);
    const bool waits = command.kind == CommandKind::wait;
    require(!waits || (command.value >= 0 && command.value < streams), "stream of command", number);
    require(!names || static_cast<std::size_t>(command.value) < plan.operations.size(), "operation of command", number);
    require(!meets || static_cast<std::size_t>(command.value) < plan.meetings.size(), "meeting of command", number);
  }
  for (std::size_t number = 0; number < plan.triggers.size(); ++number) {
    const TriggerPlan& trigger = plan.triggers[number];
    require(trigger.rank < plan.ranks.size(), "rank of trigger", number);
    require(fits(trigger.first_action, trigger.actions, plan.actions.size()), "action of trigger", number);
  }
  for (std::size_t number = 0; number < plan.injections.size(); ++number) {
    require(plan.injections[number].end < plan.ends.size(), "end of injection", number);
  }
}

}  // namespace

void check(const Plan& plan) {
  check_settings(plan);
  check_devices(plan);
  check_operations(plan);
  check_programs(plan);
  check_actions(plan);
}

}  // namespace pulse::sim
