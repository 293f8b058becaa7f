// SPDX-License-Identifier: Apache-2.0
//
// NICs, switch ports and the links between them.
//
// A transmitter is a NIC's egress or a switch port; transmitters are numbered
// NICs first. A switch port serves its inputs in turn, so that inputs share it
// max-min fairly, whatever each of them has queued. What arrives counts against
// the link that it came over; a link that fills its buffer is paused (PFC).
//
// With trains, several packets of a message travel as one wherever nothing
// disturbs them. Single packets of others slip in between, as they would; and on
// paths with competition, loss or a slow receiver every packet goes by itself.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/event_queue.hpp"
#include "sim/plan.hpp"
#include "sim/random.hpp"
#include "sim/ring_queue.hpp"

namespace pulse::sim {

// What a message is for, told to both ends when it has been delivered and acknowledged.
struct Purpose {
  enum class Kind : std::uint8_t { nothing, slot, credit, injection };
  Kind kind = Kind::nothing;
  std::uint32_t subject = 0;  // lane or injection
  std::uint32_t number = 0;   // slot or credit of the lane
};

// A run of packets in flight.
struct Segment {
  PacketRun run;
  Purpose purpose;
  std::uint32_t bytes = 0;         // on the wire, framing included, of all packets
  std::uint32_t packet_bytes = 0;  // of the first packet
  std::uint32_t path = 0;
  std::uint32_t hop = 0;          // how many ports it has passed
  std::uint32_t upstream = 0;     // transmitter whose link it came over
  Picoseconds first_ps = 0;       // when its first packet is where the segment is
  Picoseconds last_ps = 0;        // and its last
  Picoseconds left_first_ps = 0;  // when its first packet left its NIC
  Picoseconds left_last_ps = 0;   // and its last
  bool held = false;              // it counts against its upstream link
};

// The layer above: what the network asks for and hands over.
class NetworkUser {
 public:
  virtual ~NetworkUser() = default;
  // The next segment of a connection end, of at most `packets`; false = nothing may go out now.
  virtual bool next_segment(std::uint32_t end, std::uint32_t packets, Segment& segment) = 0;
  // Whether the end has anything more to send, now or later.
  [[nodiscard]] virtual bool has_more(std::uint32_t end) const = 0;
  // A segment has arrived whole.
  virtual void receive(const Segment& segment) = 0;
};

class Network {
 public:
  Network(const Plan& plan, EventQueue& events, NetworkUser& user);

  // `end` may have something to send.
  void wake(std::uint32_t end);
  // An ACK, NAK, CNP or atomic response; goes out ahead of data.
  void send_response(Segment segment);
  // The next value of a NIC's IPv4 identification, `packets` of which are used.
  std::uint16_t take_ip_ids(std::uint32_t nic, std::uint32_t packets);

  void on_event(const Event& event);
  void act(const ActionPlan& action);

  // Moves what has passed the NIC's tap into `taken`, whose content goes. Nothing is noted unless `tapped`.
  void take_sightings(std::uint32_t number, std::vector<Sighting>& taken);
  void set_tapped(bool tapped) noexcept { tapped_ = tapped; }
  // Whether runs inside of a message, neither its first nor its last packet among them, are noted: steered taps pass
  // over them.
  void note_middles(bool sent, bool received) noexcept { middles_ = {received, sent}; }
  // No sighting to come begins before this.
  [[nodiscard]] Picoseconds sighted_until() const;

  [[nodiscard]] double nic_ps_per_byte(std::uint32_t nic) const { return plan_.nics[nic].ps_per_byte; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }
  [[nodiscard]] std::uint64_t pauses() const noexcept { return pauses_; }
  [[nodiscard]] std::uint64_t marks() const noexcept { return marks_; }

 private:
  // The engine fetches this much faster than the port sends, and so many bytes ahead of it at most.
  static constexpr double kEngineHeadroom = 0.8;
  static constexpr double kAheadBytes = 8'192;
  static constexpr double kShaperBytes = 65'536;  // behind the engine where the port was slowed down

  // Packets lost at random: how many pass until the next one is lost.
  struct Loss {
    double probability = 0;
    std::uint64_t passing = 0;
    Random random{0};
  };

  // A link's receive buffer as its far end accounts for it.
  struct Buffer {
    std::uint64_t bytes = 0;
    bool pausing = false;
  };

  struct Nic {
    double engine_ps_per_byte = 0;
    double wire_ps_per_byte = 0;
    double drain_ps_per_byte = 0;  // 0 = at once
    Picoseconds engine_free_ps = 0;
    Picoseconds wire_free_ps = 0;
    Picoseconds train_packet_ps = 0;  // spacing of the train that was sent last; 0 = it was a single packet
    Picoseconds previous_arrival_ps = 0;
    std::uint32_t train_end = kNobody;  // whose train it was: nothing of its own goes in between
    std::uint32_t quantum_left = 0;
    std::uint16_t ip_id = 0;
    bool serve_asked = false;
    bool paused = false;
    bool link_down = false;
    bool dead = false;
    Picoseconds failed_ps = 0;  // since when it is one of these
    Loss loss_before_tap;
    Loss loss_on_wire;
    Random random{0};
    RingQueue<std::uint32_t> ready;      // connection ends
    RingQueue<std::uint32_t> responses;  // segments
    RingQueue<std::uint32_t> receiving;  // segments in the receive buffer
    std::vector<Sighting> sightings;
  };

  struct Input {
    std::uint32_t upstream = 0;
    RingQueue<std::uint32_t> segments;
  };

  struct Port {
    double ps_per_byte = 0;
    Picoseconds free_ps = 0;
    Picoseconds previous_arrival_ps = 0;
    Picoseconds contended_until_ps = 0;  // inputs competed recently
    Picoseconds train_packet_ps = 0;     // as of a NIC
    std::uint64_t queued_bytes = 0;
    std::uint32_t served = kNobody;  // input whose data was served last
    std::uint32_t turn = 0;          // input that is served next
    bool serve_asked = false;
    bool paused = false;
    bool off = false;
    Loss loss;
    Random random{0};
    std::vector<Input> inputs;
  };

  struct ForeignLoad {
    std::uint32_t port = 0;
    std::uint32_t burst_bytes = 0;
    double share = 0;
    double level = 1;                // present strength relative to the share
    std::uint32_t until_change = 0;  // bursts
    Random random{0};
  };

  // network_nic.cpp
  void ask_to_serve(std::uint32_t number);
  void serve_nic(std::uint32_t number);
  bool next_to_send(std::uint32_t number, Segment& segment);
  [[nodiscard]] std::uint32_t train_limit(std::uint32_t end) const;
  [[nodiscard]] bool mid_train(const Nic& nic) const;
  bool slip_out(std::uint32_t number, std::uint32_t end);
  void transmit(std::uint32_t number, Segment segment, bool between);
  void put_on_wire(std::uint32_t number, const Segment& segment, Picoseconds queued_ps);
  void send_over_link(Nic& nic, const Segment& segment, Picoseconds extra_ps);
  void arrive_at_nic(std::uint32_t index);
  void drain(std::uint32_t number);
  void on_drained(std::uint32_t number);
  void cut_short(std::uint32_t number, std::uint32_t index);
  void forget_future(std::uint32_t number);
  void hand_over(std::uint32_t number, std::uint32_t index);
  void see(std::uint32_t number, const Segment& segment, Picoseconds queued_ps, bool sent);

  // network_port.cpp
  void arrive_at_port(std::uint32_t index);
  void drop_queue(std::uint32_t number);
  void enqueue(std::uint32_t number, std::uint32_t index);
  void ask_port_to_serve(std::uint32_t number);
  void serve_port(std::uint32_t number);
  [[nodiscard]] static bool may_slip_through(const Port& port, const Segment& segment);
  void send_from_port(std::uint32_t number, std::uint32_t index, bool between);
  void mark(Port& port, Segment& segment);
  void burst(std::uint32_t number);
  void start_foreign_load(const ActionPlan& action);

  // network.cpp
  void forward(std::uint32_t index);
  [[nodiscard]] static Segment part_of(const Segment& whole, std::uint32_t from, std::uint32_t count);
  [[nodiscard]] static std::uint32_t packets_until(Picoseconds first_ps, Picoseconds last_ps, std::uint32_t count,
                                                   Picoseconds time_ps);
  bool keep_what_left(std::uint32_t index);
  void fail(std::uint32_t number);
  [[nodiscard]] std::uint32_t next_port(const Segment& segment) const;
  bool lose(Loss& loss, Segment& segment, Segment& rest);
  void begin_loss(Loss& loss, double probability);
  void hold(Segment& segment);
  void release(Segment& segment);
  void set_paused(std::uint32_t transmitter, bool paused);
  [[nodiscard]] Picoseconds link_latency(std::uint32_t transmitter) const;
  std::uint32_t store(const Segment& segment);
  void discard(std::uint32_t index);

  const Plan& plan_;
  EventQueue& events_;
  NetworkUser& user_;
  std::vector<Nic> nics_;
  std::vector<Port> ports_;
  std::vector<bool> end_ready_;
  std::vector<std::uint32_t> path_of_end_;
  std::vector<Picoseconds> delivered_until_;  // by end: a flow never overtakes itself
  std::vector<Buffer> buffers_;               // by transmitter
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> unused_segments_;
  std::vector<ForeignLoad> loads_;
  Picoseconds longest_spread_ps_ = 0;  // of the packets of one segment
  std::uint32_t losses_begun_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t pauses_ = 0;
  std::uint64_t marks_ = 0;
  bool tapped_ = true;
  std::array<bool, 2> middles_{true, true};  // received, sent
};

}  // namespace pulse::sim
