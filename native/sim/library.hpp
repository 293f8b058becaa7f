// SPDX-License-Identifier: Apache-2.0
//
// The collective library on the wire: lanes with slots and credits, the proxy
// thread of each rank, and the GPUs that run operations step by step.
//
// A step runs only when its input slots are there and its output buffers have
// room; a slot goes out only once the receiver has granted it. Nothing else ever
// delays or releases a rank.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/transport.hpp"

namespace pulse::sim {

inline constexpr Picoseconds kNever = -1;

// When one slot passed which station.
struct SlotRecord {
  std::uint32_t lane = 0;
  std::uint32_t bytes = 0;
  std::uint32_t tag = 0;
  std::uint32_t parts_missing = 1;  // of a slot that is split over connections
  std::uint32_t parts_unacknowledged = 1;
  std::uint32_t here = 0;  // the receiver's host has told its GPU
  Picoseconds staged_ps = kNever;
  Picoseconds posted_ps = kNever;
  Picoseconds delivered_ps = kNever;
  Picoseconds consumed_ps = kNever;
  Picoseconds acknowledged_ps = kNever;
};

struct CreditRecord {
  std::uint32_t lane = 0;
  std::uint32_t number = 0;
  Picoseconds posted_ps = kNever;
  Picoseconds arrived_ps = kNever;
};

struct OperationRecord {
  std::uint32_t rank = 0;
  std::int32_t step = 0;
  std::uint32_t operation = 0;
  std::uint32_t reserved = 0;
  Picoseconds enter_ps = kNever;
  Picoseconds end_ps = kNever;
};

struct StepRecord {
  std::uint32_t rank = 0;
  std::int32_t step = 0;
  Picoseconds begin_ps = kNever;
  Picoseconds first_operation_ps = kNever;
  Picoseconds last_operation_ps = kNever;
  Picoseconds end_ps = kNever;
};

class Library final : public TransportUser {
 public:
  Library(const Plan& plan, EventQueue& events, Transport& transport, Network& network);

  // Asks all ranks and injections to begin.
  void begin();
  void on_event(const Event& event);

  void delivered(const Purpose& purpose) override;
  void acknowledged(const Purpose& purpose) override;
  void connection_failed(std::uint32_t end) override;

  [[nodiscard]] bool all_finished() const noexcept { return unfinished_ == 0; }
  [[nodiscard]] Picoseconds onset_ps() const noexcept { return onset_ps_; }
  [[nodiscard]] const std::vector<Picoseconds>& trigger_times() const noexcept { return trigger_times_; }
  [[nodiscard]] std::vector<SlotRecord> slot_records() const;
  [[nodiscard]] const std::vector<CreditRecord>& credit_records() const noexcept { return credit_records_; }
  [[nodiscard]] const std::vector<OperationRecord>& operation_records() const noexcept { return operation_records_; }
  [[nodiscard]] const std::vector<StepRecord>& step_records() const noexcept { return step_records_; }
  [[nodiscard]] const std::vector<std::uint32_t>& failed_ends() const noexcept { return failed_ends_; }

 private:
  // Where a thread of a running operation stands.
  struct ThreadState {
    std::uint32_t position = 0;
    bool busy = false;
  };

  struct Running {
    std::uint32_t rank = 0;
    std::uint32_t operation = 0;
    std::uint32_t record = 0;
    std::uint32_t threads_left = 0;
    std::uint32_t unacknowledged = 0;  // slots
    bool open = false;
    std::vector<ThreadState> threads;
  };

  struct Lane {
    std::uint32_t send_running = kNobody;
    std::uint32_t send_thread = 0;
    std::uint32_t receive_running = kNobody;
    std::uint32_t receive_thread = 0;
    // sender
    std::uint32_t staged = 0;  // slots handed over by the GPU
    std::uint32_t posted = 0;  // of these, handed to the host
    std::uint32_t credits = 0;
    std::uint32_t unacknowledged = 0;
    // receiver
    std::uint64_t expected = 0;
    std::uint64_t granted = 0;
    std::uint32_t consumed = 0;
    std::vector<SlotRecord> slots;
    std::vector<std::uint32_t> credit_record;  // by credit number
  };

  enum class HostWork : std::uint8_t { post_slot, post_credit, use_credit, announce_arrival, free_buffer };

  // The proxy thread: does things in order, each a little later, never once stopped.
  struct Host {
    Picoseconds free_ps = 0;
    double hold_probability = 0;
    double hold_ps = 0;
    Random random{0};
    Random hold_random{0};
  };

  struct Stream {
    RingQueue<std::uint32_t> waiting;    // operations
    RingQueue<std::uint32_t> announced;  // operations
    std::uint32_t running = kNobody;
  };

  struct Rank {
    Host host;
    std::uint32_t next_command = 0;
    std::uint32_t step_record = kNobody;
    std::uint32_t entered = 0;  // operations of this step
    std::int32_t waits_for_stream = -1;
    std::uint32_t waits_for_operation = kNobody;
    bool stopped = false;
    bool finished = false;
    std::vector<Stream> streams;
  };

  static constexpr std::uint32_t kLaneBits = 29;  // of a host action's subject; the rest says what is to be done

  // library_lane.cpp
  void ask_host(std::uint32_t rank, HostWork work, std::uint32_t lane, std::uint32_t number);
  void do_host_work(HostWork work, std::uint32_t lane_number, std::uint32_t slot);
  void stage(std::uint32_t number, std::uint32_t bytes, std::uint32_t tag);
  void push(std::uint32_t number);
  void post_slot(std::uint32_t number, std::uint32_t slot);
  void post_credit(std::uint32_t number, std::uint32_t credit);
  void expect(std::uint32_t number, std::uint32_t slots);
  void grant(std::uint32_t number);
  void free_buffer(std::uint32_t number);
  void inject(std::uint32_t number);

  // library_rank.cpp
  void advance(std::uint32_t number);
  bool obey(std::uint32_t number, const Command& command);
  void begin_step(std::uint32_t number, std::int32_t step);
  void announce_next(std::uint32_t number, Stream& stream);
  void announce(std::uint32_t operation);
  void run_next(std::uint32_t number, std::uint32_t place);
  void start_operation(std::uint32_t number, std::uint32_t operation);
  void attach_lanes(std::uint32_t running);
  void try_thread(std::uint32_t index, std::uint32_t thread);
  [[nodiscard]] bool can_run(const Running& running, const StepPlan& step) const;
  void finish_step(std::uint32_t index, std::uint32_t thread);
  void check_end(std::uint32_t index);
  void meet(std::uint32_t number, std::uint32_t meeting);
  void stop_rank(std::uint32_t number);
  void pull_triggers(std::uint32_t number, std::int32_t operation);
  void strike(std::uint32_t trigger);
  void act(const ActionPlan& action);

  const Plan& plan_;
  EventQueue& events_;
  Transport& transport_;
  Network& network_;
  std::vector<Lane> lanes_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<std::uint32_t>> meetings_;  // ranks that are there already
  std::vector<Running> running_;
  std::vector<bool> announced_;        // by operation
  std::vector<bool> ended_;            // by operation
  std::vector<std::uint32_t> posted_;  // by injection
  std::vector<std::uint32_t> lane_of_end_;
  std::vector<std::vector<std::uint32_t>> triggers_of_rank_;
  std::vector<CreditRecord> credit_records_;
  std::vector<OperationRecord> operation_records_;
  std::vector<StepRecord> step_records_;
  std::vector<std::uint32_t> failed_ends_;
  std::vector<Picoseconds> trigger_times_;
  Picoseconds onset_ps_ = kNever;
  std::size_t unfinished_ = 0;
};

}  // namespace pulse::sim
