// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "sim/engine.hpp"

namespace pulse::sim {

namespace {

constexpr std::uint32_t kMostStreams = 64;
constexpr double kMostLoad = 10;
constexpr double kSlowestPsPerByte = 1e12;  // a byte per second
constexpr std::int64_t kLeastBurstBytes = 64;

void require(bool holds, const std::string& what, std::size_t number) {
  if (!holds) throw std::invalid_argument(what + " " + std::to_string(number) + " refers to nothing");
}

bool fits(std::uint64_t first, std::uint64_t count, std::size_t size) { return first + count <= size; }

void require_positive(std::int64_t value, const std::string& what) {
  if (value <= 0) throw std::invalid_argument(what + " must be positive");
}

bool is_rate(double ps_per_byte) { return ps_per_byte > 0 && ps_per_byte < kSlowestPsPerByte; }

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
  for (const PortPlan& port : plan.ports) {
    if (!is_rate(port.ps_per_byte)) throw std::invalid_argument("ps_per_byte of a port must be positive");
  }
  for (const NicPlan& nic : plan.nics) {
    if (!is_rate(nic.ps_per_byte)) throw std::invalid_argument("ps_per_byte of a NIC must be positive");
  }
}

bool action_is_known(ActionKind kind) { return kind <= ActionKind::foreign_load; }

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
      return action_is_known(kind) ? plan.nics.size() : 0;
  }
}

void check_actions(const Plan& plan) {
  for (std::size_t number = 0; number < plan.actions.size(); ++number) {
    const ActionPlan& action = plan.actions[number];
    require(action.subject < subjects(plan, action.kind), "subject of action", number);
    const bool leads = action.kind != ActionKind::pin_path ||
                       (action.extra >= 0 && static_cast<std::size_t>(action.extra) < plan.paths.size());
    require(leads, "path of action", number);
    const bool loads = action.kind == ActionKind::foreign_load && !(action.value <= 0);
    require(!loads || (action.value <= kMostLoad && action.extra >= kLeastBurstBytes), "load of action", number);
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

// Every lane of a template has one thread that takes from it, or gives to it, and each step takes one slot of it.
void check_lanes(const Plan& plan, const TemplatePlan& form, std::size_t number) {
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> thread_of;
  for (std::uint32_t thread = form.first_thread; thread < form.first_thread + form.threads; ++thread) {
    const ThreadPlan& one = plan.threads[thread];
    require(one.steps > 0 && fits(one.first_step, one.steps, plan.steps.size()), "thread", thread);
    for (std::uint32_t step = one.first_step; step < one.first_step + one.steps; ++step) {
      const StepPlan& part = plan.steps[step];
      require(fits(part.first_receive, part.receives + part.sends, plan.step_lanes.size()), "step", step);
      std::set<std::pair<std::uint32_t, bool>> used;
      for (std::uint32_t place = 0; place < part.receives + part.sends; ++place) {
        const std::pair use{plan.step_lanes[part.first_receive + place], place < part.receives};
        require(used.insert(use).second, "lane used twice by a step of template", number);
        require(thread_of.try_emplace(use, thread).first->second == thread, "lane of two threads of template", number);
      }
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
    require(form.threads > 0 && fits(form.first_thread, form.threads, plan.threads.size()), "template", number);
    check_lanes(plan, form, number);
  }
  for (std::size_t number = 0; number < plan.operations.size(); ++number) {
    require(plan.operations[number].form < plan.templates.size(), "template of operation", number);
    require(plan.operations[number].stream < kMostStreams, "stream of operation", number);
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
