// SPDX-License-Identifier: Apache-2.0
//
// Ranks: their programs, the operations that run on their streams, and what
// happens to them from outside.
#include <algorithm>
#include <stdexcept>

#include "sim/library.hpp"

namespace pulse::sim {

namespace {

constexpr Picoseconds kWakePs = 500'000;  // from the end of the last operation until a waiting program goes on

}  // namespace

Library::Library(const Plan& plan, EventQueue& events, Transport& transport, Network& network)
    : plan_(plan), events_(events), transport_(transport), network_(network) {
  lanes_.resize(plan.lanes.size());
  ranks_.resize(plan.ranks.size());
  announced_.resize(plan.operations.size());
  ended_.resize(plan.operations.size());
  meetings_.resize(plan.meetings.size());
  posted_.resize(plan.injections.size());
  triggers_of_rank_.resize(plan.ranks.size());
  trigger_times_.assign(plan.triggers.size(), kNever);
  lane_of_end_.assign(plan.ends.size(), kNobody);
  for (std::uint32_t number = 0; number < plan.lanes.size(); ++number) {
    const LanePlan& lane = plan.lanes[number];
    const std::uint32_t first = 2 * lane.first_connection;
    std::fill_n(lane_of_end_.begin() + first, 2 * lane.connections, number);
  }
  std::uint32_t streams = 1;
  for (const OperationPlan& operation : plan.operations) streams = std::max(streams, operation.stream + 1);
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    Rank& rank = ranks_[number];
    rank.streams.resize(streams);
    rank.host.random = Random(derive_seed(plan.seed, 20, number));
  }
  for (std::uint32_t number = 0; number < plan.triggers.size(); ++number) {
    triggers_of_rank_[plan.triggers[number].rank].push_back(number);
  }
}

void Library::begin() {
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    ranks_[number].finished = plan_.ranks[number].commands == 0;
    if (ranks_[number].finished) continue;
    ++unfinished_;
    events_.at(plan_.ranks[number].begin_ps, EventKind::rank_advance, number);
  }
  for (std::uint32_t number = 0; number < plan_.injections.size(); ++number) {
    const InjectionPlan& plan = plan_.injections[number];
    for (std::uint32_t turn = 0; turn < std::min(plan.depth, plan.messages); ++turn) {
      events_.at(plan.begin_ps, EventKind::inject, number);
    }
  }
}

void Library::on_event(const Event& event) {
  switch (event.kind()) {
    case EventKind::host_action:
      return do_host_work(static_cast<HostWork>(event.subject >> kLaneBits), event.subject & ((1U << kLaneBits) - 1),
                          event.detail);
    case EventKind::step_done:
      return finish_step(event.subject, event.detail);
    case EventKind::rank_advance:
      return advance(event.subject);
    case EventKind::trigger:
      return strike(event.subject);
    case EventKind::inject:
      return inject(event.subject);
    default:
      throw std::logic_error("an event of another layer came to the library");
  }
}

// ---- the program of a rank

void Library::advance(std::uint32_t number) {
  Rank& rank = ranks_[number];
  const RankPlan& plan = plan_.ranks[number];
  while (!rank.stopped) {
    if (rank.next_command == plan.commands) {
      if (!rank.finished) --unfinished_;
      rank.finished = true;
      return;
    }
    if (!obey(number, plan_.commands[plan.first_command + rank.next_command++])) return;
  }
}

// False when the program has to wait for an event.
bool Library::obey(std::uint32_t number, const Command& command) {
  Rank& rank = ranks_[number];
  const auto value = static_cast<std::uint32_t>(command.value);
  switch (command.kind) {
    case CommandKind::begin_step:
      begin_step(number, static_cast<std::int32_t>(command.value));
      return true;
    case CommandKind::end_step:
      step_records_[rank.step_record].end_ps = events_.now();
      return true;
    case CommandKind::compute:
      events_.after(command.value, EventKind::rank_advance, number);
      return false;
    case CommandKind::announce: {
      Stream& stream = rank.streams[plan_.operations[value].stream];
      stream.announced.push_back(value);
      announce_next(number, stream);
      return true;
    }
    case CommandKind::start: {
      const std::uint32_t stream = plan_.operations[value].stream;
      rank.streams[stream].waiting.push_back(value);
      run_next(number, stream);
      return true;
    }
    case CommandKind::wait:
      if (rank.streams[value].running == kNobody && rank.streams[value].waiting.empty()) return true;
      rank.waits_for_stream = static_cast<std::int32_t>(value);
      return false;
    case CommandKind::wait_for:
      if (!ended_[value]) rank.waits_for_operation = value;
      return ended_[value];
    case CommandKind::couple:
      meet(number, value);
      return false;
  }
  return true;
}

void Library::begin_step(std::uint32_t number, std::int32_t step) {
  Rank& rank = ranks_[number];
  rank.step_record = static_cast<std::uint32_t>(step_records_.size());
  rank.entered = 0;
  StepRecord record;
  record.rank = number;
  record.step = step;
  record.begin_ps = events_.now();
  step_records_.push_back(record);
  pull_triggers(number, -1);
}

void Library::meet(std::uint32_t number, std::uint32_t meeting) {
  std::vector<std::uint32_t>& here = meetings_[meeting];
  here.push_back(number);
  if (here.size() < plan_.meetings[meeting]) return;
  for (const std::uint32_t member : here) events_.after(plan_.library.couple_ps, EventKind::rank_advance, member);
  here.clear();
}

// ---- operations

// The host runs ahead of the GPU: it grants the first slots of the next operation once the stream is idle.
void Library::announce_next(std::uint32_t number, Stream& stream) {
  const bool idle = stream.running == kNobody && stream.waiting.empty();
  if (plan_.library.early_credits && idle && !stream.announced.empty() && !ranks_[number].stopped) {
    announce(stream.announced.front());
  }
}

// Tells every incoming lane how many slots will be taken; done once, early or on entry.
void Library::announce(std::uint32_t operation) {
  if (announced_[operation]) return;
  announced_[operation] = true;
  const TemplatePlan& form = plan_.templates[plan_.operations[operation].form];
  for (std::uint32_t thread = form.first_thread; thread < form.first_thread + form.threads; ++thread) {
    const ThreadPlan& plan = plan_.threads[thread];
    for (std::uint32_t step = plan.first_step; step < plan.first_step + plan.steps; ++step) {
      const StepPlan& one = plan_.steps[step];
      for (std::uint32_t place = 0; place < one.receives; ++place) {
        expect(plan_.step_lanes[one.first_receive + place], 1);
      }
    }
  }
}

void Library::run_next(std::uint32_t number, std::uint32_t place) {
  Rank& rank = ranks_[number];
  Stream& stream = rank.streams[place];
  if (stream.running != kNobody || stream.waiting.empty() || rank.stopped) return;
  const std::uint32_t operation = stream.waiting.pop_front();
  if (!stream.announced.empty() && stream.announced.front() == operation) stream.announced.pop_front();
  pull_triggers(number, static_cast<std::int32_t>(rank.entered++));
  if (!rank.stopped) start_operation(number, operation);
}

void Library::start_operation(std::uint32_t number, std::uint32_t operation) {
  Rank& rank = ranks_[number];
  const TemplatePlan& form = plan_.templates[plan_.operations[operation].form];
  const auto running = static_cast<std::uint32_t>(running_.size());
  const bool in_step = rank.step_record != kNobody;
  if (in_step && step_records_[rank.step_record].first_operation_ps == kNever) {
    step_records_[rank.step_record].first_operation_ps = events_.now();
  }
  const std::int32_t step = in_step ? step_records_[rank.step_record].step : -1;
  Running state;
  state.rank = number;
  state.operation = operation;
  state.record = static_cast<std::uint32_t>(operation_records_.size());
  state.threads_left = form.threads;
  state.open = true;
  state.threads.resize(form.threads);
  running_.push_back(std::move(state));
  operation_records_.push_back({number, step, operation, 0, events_.now(), kNever});
  rank.streams[plan_.operations[operation].stream].running = running;
  announce(operation);
  attach_lanes(running);
  for (std::uint32_t thread = 0; thread < form.threads; ++thread) try_thread(running, thread);
  check_end(running);
}

// From now on the operation's lanes wake its threads.
void Library::attach_lanes(std::uint32_t running) {
  const TemplatePlan& form = plan_.templates[plan_.operations[running_[running].operation].form];
  for (std::uint32_t thread = 0; thread < form.threads; ++thread) {
    const ThreadPlan& plan = plan_.threads[form.first_thread + thread];
    for (std::uint32_t step = plan.first_step; step < plan.first_step + plan.steps; ++step) {
      const StepPlan& one = plan_.steps[step];
      for (std::uint32_t place = 0; place < one.receives + one.sends; ++place) {
        Lane& lane = lanes_[plan_.step_lanes[one.first_receive + place]];
        (place < one.receives ? lane.receive_running : lane.send_running) = running;
        (place < one.receives ? lane.receive_thread : lane.send_thread) = thread;
      }
    }
  }
}

// Starts the thread's next step if it can run.
void Library::try_thread(std::uint32_t index, std::uint32_t thread) {
  Running& running = running_[index];
  if (!running.open || ranks_[running.rank].stopped) return;
  ThreadState& state = running.threads[thread];
  const TemplatePlan& form = plan_.templates[plan_.operations[running.operation].form];
  const ThreadPlan& plan = plan_.threads[form.first_thread + thread];
  if (state.busy || state.position == plan.steps) return;
  const StepPlan& step = plan_.steps[plan.first_step + state.position];
  if (!can_run(running, step)) return;
  state.busy = true;
  const auto work = static_cast<Picoseconds>(step.bytes * plan_.library.reduce_ps_per_byte);
  events_.after(plan_.library.step_ps + work, EventKind::step_done, index, thread);
}

bool Library::can_run(const Running& running, const StepPlan& step) const {
  const std::uint32_t tag = plan_.operations[running.operation].tag;
  for (std::uint32_t place = 0; place < step.receives + step.sends; ++place) {
    const Lane& lane = lanes_[plan_.step_lanes[step.first_receive + place]];
    if (place < step.receives) {
      if (lane.consumed >= lane.slots.size()) return false;
      const SlotRecord& slot = lane.slots[lane.consumed];
      if (slot.here == 0 || slot.tag != tag) return false;
    } else if (lane.unacknowledged >= plan_.library.depth) {
      return false;
    }
  }
  return true;
}

void Library::finish_step(std::uint32_t index, std::uint32_t thread) {
  const std::uint32_t rank = running_[index].rank;
  if (ranks_[rank].stopped) return;
  const OperationPlan& operation = plan_.operations[running_[index].operation];
  const ThreadPlan& plan = plan_.threads[plan_.templates[operation.form].first_thread + thread];
  ThreadState& state = running_[index].threads[thread];
  const StepPlan& step = plan_.steps[plan.first_step + state.position];
  for (std::uint32_t place = 0; place < step.receives; ++place) {
    const std::uint32_t number = plan_.step_lanes[step.first_receive + place];
    Lane& lane = lanes_[number];
    lane.slots[lane.consumed++].consumed_ps = events_.now();
    grant(number);
  }
  for (std::uint32_t place = 0; place < step.sends; ++place) {
    stage(plan_.step_lanes[step.first_receive + step.receives + place], step.bytes, operation.tag);
  }
  state.busy = false;
  if (++state.position == plan.steps) --running_[index].threads_left;
  try_thread(index, thread);
  check_end(index);
}

// An operation is over when all steps are done and the other side has acknowledged every slot.
void Library::check_end(std::uint32_t index) {
  Running& running = running_[index];
  if (!running.open || running.threads_left > 0 || running.unacknowledged > 0) return;
  running.open = false;
  running.threads = {};
  const std::uint32_t number = running.rank;
  const std::uint32_t operation = running.operation;
  const std::uint32_t place = plan_.operations[operation].stream;
  ended_[operation] = true;
  operation_records_[running.record].end_ps = events_.now();
  Rank& rank = ranks_[number];
  if (rank.step_record != kNobody) step_records_[rank.step_record].last_operation_ps = events_.now();
  Stream& stream = rank.streams[place];
  stream.running = kNobody;
  announce_next(number, stream);
  run_next(number, place);
  const bool idle = stream.running == kNobody && stream.waiting.empty();
  const bool waited =
      rank.waits_for_operation == operation || (rank.waits_for_stream == static_cast<std::int32_t>(place) && idle);
  if (waited) {
    rank.waits_for_stream = -1;
    rank.waits_for_operation = kNobody;
    events_.after(kWakePs, EventKind::rank_advance, number);
  }
}

// ---- what happens to ranks

void Library::stop_rank(std::uint32_t number) { ranks_[number].stopped = true; }

void Library::connection_failed(std::uint32_t end) {
  failed_ends_.push_back(end);
  const std::uint32_t lane = lane_of_end_[end];
  if (lane == kNobody) return;
  const bool sends = (end & 1U) == 0;
  stop_rank(sends ? plan_.lanes[lane].sender : plan_.lanes[lane].receiver);
}

void Library::pull_triggers(std::uint32_t number, std::int32_t operation) {
  const std::uint32_t record = ranks_[number].step_record;
  const std::int32_t step = record == kNobody ? -1 : step_records_[record].step;
  for (const std::uint32_t trigger : triggers_of_rank_[number]) {
    const TriggerPlan& plan = plan_.triggers[trigger];
    if (plan.step != step || plan.operation != operation) continue;
    if (plan.delay_ps == 0) {
      strike(trigger);
    } else {
      events_.after(plan.delay_ps, EventKind::trigger, trigger);
    }
  }
}

void Library::strike(std::uint32_t trigger) {
  const TriggerPlan& plan = plan_.triggers[trigger];
  trigger_times_[trigger] = events_.now();
  if (plan.onset && onset_ps_ == kNever) onset_ps_ = events_.now();
  for (std::uint32_t place = 0; place < plan.actions; ++place) act(plan_.actions[plan.first_action + place]);
}

void Library::act(const ActionPlan& action) {
  switch (action.kind) {
    case ActionKind::rank_stop:
      return stop_rank(action.subject);
    case ActionKind::rank_crash:
      stop_rank(action.subject);
      for (std::uint32_t end = 0; end < lane_of_end_.size(); ++end) {
        if (lane_of_end_[end] == kNobody) continue;
        const LanePlan& lane = plan_.lanes[lane_of_end_[end]];
        if (((end & 1U) == 0 ? lane.sender : lane.receiver) == action.subject) transport_.destroy(end);
      }
      return;
    case ActionKind::host_hold: {
      Host& host = ranks_[action.subject].host;
      host.hold_probability = action.value;
      host.hold_ps = static_cast<double>(action.extra);
      host.hold_random = Random(derive_seed(plan_.seed, 21, action.subject));
      return;
    }
    default:
      return network_.act(action);
  }
}

}  // namespace pulse::sim
