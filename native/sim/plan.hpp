// SPDX-License-Identifier: Apache-2.0
//
// What is simulated, complete before it begins: devices, connections, lanes,
// operations, the program of every rank, and what breaks when. Everything refers
// to everything else by index.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/packet_run.hpp"

namespace pulse::sim {

inline constexpr std::uint32_t kNobody = 0xffff'ffff;
inline constexpr std::size_t kMaxHops = 4;  // leaf, spine, leaf and one more

// One output queue of a switch with the link behind it.
struct PortPlan {
  double ps_per_byte = 20;
  Picoseconds latency_ps = 1'000'000;  // the link and the next switch's forwarding
  Picoseconds jitter_ps = 0;           // at most so much more, never out of order
};

struct NicPlan {
  double ps_per_byte = 20;
  Picoseconds latency_ps = 1'000'000;  // the link and the first switch's forwarding
  Picoseconds jitter_ps = 0;
  std::uint32_t access_port = kNobody;  // the switch port in front of it
};

// Which ports the packets of a connection end pass on their way to the other end's NIC.
struct Path {
  std::array<std::uint32_t, kMaxHops> ports{};
  std::uint32_t hops = 0;
};

struct NetworkPlan {
  std::uint32_t header_bytes = 42;    // Ethernet, VLAN, IP and UDP
  std::uint64_t mark_from_bytes = 0;  // random early marking of data begins here; 0 = no marks
  std::uint64_t mark_all_bytes = 0;   // from here on every packet is marked
  double mark_probability = 0.01;     // just below `mark_all_bytes`
  std::uint64_t pause_bytes = 0;      // buffered bytes of one link at which it is paused; 0 = never
  std::uint64_t resume_bytes = 0;     // and at which it goes on
  std::uint64_t queue_bytes = 0;      // a port drops what exceeds this; 0 = unbounded
  std::uint32_t quantum_packets = 8;  // of one connection before the NIC turns to the next
  std::uint32_t train_packets = 1;    // packets that travel as one; 1 = every packet by itself
  double fetch_jitter_ps = 0;         // mean extra time to fetch a data packet from memory
};

struct TransportPlan {
  std::uint32_t mtu = 4096;
  std::uint32_t ack_every = 0;  // packets; 0 = only message ends ask for an ACK
  bool coalesce_acks = true;    // one ACK answers all that has come when it is sent; else each request gets its own
  Picoseconds ack_latency_ps = 0;
  double ack_jitter_ps = 0;
  Picoseconds timeout_ps = 0;
  std::uint32_t retry_limit = 7;
  Picoseconds cnp_interval_ps = 0;
  double alpha_gain = 1.0 / 256;      // DCQCN's g
  Picoseconds alpha_timer_ps = 0;     // DCQCN's K
  Picoseconds increase_timer_ps = 0;  // DCQCN's T
  std::uint64_t increase_bytes = 0;   // DCQCN's B
  std::uint32_t fast_recovery_rounds = 5;
  double additive_share = 0.001;  // of the NIC's rate, per round
  double hyper_share = 0.01;
  double lowest_share = 0.001;
};

enum class CreditVerb : std::uint8_t { none, write, send, fetch_add };

struct LibraryPlan {
  std::uint32_t depth = 8;       // slots in flight per lane
  bool empty_immediate = false;  // a write, then an empty write with immediate; else one write with immediate
  bool split_slots = false;      // each slot over all connections of its lane; else one after the other
  CreditVerb credit_verb = CreditVerb::write;
  bool early_credits = false;  // the host grants the next operation's first slots while the GPU computes
  std::uint32_t credit_bytes = 64;
  double host_ps = 3'000'000;         // reaction time of the proxy thread
  double host_jitter_ps = 2'000'000;  // mean of its exponential part
  Picoseconds step_ps = 200'000;      // fixed time of a GPU step
  double reduce_ps_per_byte = 50;
  Picoseconds couple_ps = 2'000'000;  // from the last arrival at a meeting of a machine's GPUs on
};

// A directed edge between two ranks on one channel: connections first_connection .. + connections - 1.
struct LanePlan {
  std::uint32_t sender = 0;
  std::uint32_t receiver = 0;
  std::uint32_t first_connection = 0;
  std::uint32_t connections = 1;
  std::uint32_t slot_bytes = 0;  // distance of slots in memory
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
};

// Take one slot from each of some lanes, hand one of `bytes` to each of others; spans of `step_lanes`.
struct StepPlan {
  std::uint32_t first_receive = 0;
  std::uint16_t receives = 0;
  std::uint16_t sends = 0;  // follow the receives
  std::uint32_t bytes = 0;
};

// Steps that follow one another; an operation has several such threads.
struct ThreadPlan {
  std::uint32_t first_step = 0;
  std::uint32_t steps = 0;
};

// One rank's part of a kind of collective; many operations share one.
struct TemplatePlan {
  std::uint32_t first_thread = 0;
  std::uint32_t threads = 0;
};

struct OperationPlan {
  std::uint32_t form = 0;    // template
  std::uint32_t tag = 0;     // equal where ranks agree on what they run
  std::uint32_t stream = 0;  // operations of one stream run one after the other
};

enum class CommandKind : std::uint8_t { begin_step, end_step, compute, announce, start, wait, wait_for, couple };

struct Command {
  std::int64_t value = 0;  // step, picoseconds, operation, stream (wait) or meeting (couple)
  CommandKind kind = CommandKind::compute;
};

struct RankPlan {
  std::uint32_t nic = 0;
  Picoseconds begin_ps = 0;
  std::uint32_t first_command = 0;
  std::uint32_t commands = 0;
};

enum class ActionKind : std::uint8_t {
  engine_rate,      // NIC: fetches data at value x its own time per byte
  wire_rate,        // NIC: its port sends at value x its own time per byte
  drain_rate,       // NIC: received packets leave its buffer at value x its time per byte
  port_rate,        // port: value x its time per byte
  loss_before_tap,  // NIC: probability for sent packets, ahead of the tap
  loss_on_wire,     // NIC: the same behind the tap
  port_loss,        // port: probability
  link_down,        // NIC: nothing passes its link either way
  link_up,          // NIC
  nic_dead,         // NIC: neither sends nor receives
  rank_stop,        // rank: its process does nothing any more, its NIC lives on
  rank_crash,       // rank: the same, and its queue pairs are gone
  host_hold,        // rank: host actions are held with probability `value`, for `extra` ps on average
  pin_path,         // connection end: takes path `extra` of `paths`
  foreign_load,     // port: other traffic takes the share `value` (0 = no more); `extra` = bytes of a burst
};

struct ActionPlan {
  ActionKind kind = ActionKind::rank_stop;
  std::uint32_t subject = 0;
  double value = 0;
  std::int64_t extra = 0;
};

// Actions that begin when a rank begins a step (or enters its n-th operation of it) and `delay_ps` later.
struct TriggerPlan {
  std::uint32_t rank = 0;
  std::int32_t step = 0;
  std::int32_t operation = -1;  // -1 = at the step's beginning
  Picoseconds delay_ps = 0;
  std::uint32_t first_action = 0;
  std::uint32_t actions = 0;
  bool onset = false;  // the time of the first such trigger is a fault's onset
};

// Messages outside of collectives: `messages` of them, `depth` at a time from `begin_ps` on.
struct InjectionPlan {
  std::uint32_t end = 0;
  Verb verb = Verb::write;
  std::uint32_t bytes = 0;
  std::uint32_t messages = 1;
  std::uint32_t depth = 1;
  Picoseconds begin_ps = 0;
};

struct Plan {
  std::uint64_t seed = 0;
  NetworkPlan network;
  TransportPlan transport;
  LibraryPlan library;
  std::vector<PortPlan> ports;
  std::vector<NicPlan> nics;
  std::vector<EndAddress> ends;  // two per connection, the lane's sender first
  std::vector<Path> paths;       // one per end, then alternatives for pin_path
  std::vector<LanePlan> lanes;
  std::vector<std::uint32_t> step_lanes;
  std::vector<StepPlan> steps;
  std::vector<ThreadPlan> threads;
  std::vector<TemplatePlan> templates;
  std::vector<OperationPlan> operations;
  std::vector<Command> commands;
  std::vector<std::uint32_t> meetings;  // ranks that wait for each other: how many
  std::vector<RankPlan> ranks;
  std::vector<ActionPlan> actions;
  std::vector<TriggerPlan> triggers;
  std::vector<InjectionPlan> injections;
};

}  // namespace pulse::sim
