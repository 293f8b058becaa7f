// SPDX-License-Identifier: Apache-2.0
//
// Reliable connections: messages cut into packets, acknowledgements, go-back-N,
// and DCQCN's reaction to congestion notifications (Zhu et al., SIGCOMM 2015).
//
// Sequence numbers are unwrapped inside; headers show (start PSN + index) mod 2^24.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network.hpp"

namespace pulse::sim {

// One work request.
struct Message {
  Verb verb = Verb::write;
  Purpose purpose;
  std::uint32_t bytes = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t immediate = 0;
  std::uint32_t packets = 1;
  std::uint64_t address = 0;
  std::uint64_t first_index = 0;
};

class TransportUser {
 public:
  virtual ~TransportUser() = default;
  // The last packet of a message has arrived in order.
  virtual void delivered(const Purpose& purpose) = 0;
  // The sender knows it.
  virtual void acknowledged(const Purpose& purpose) = 0;
  // The retry limit is reached; the end is dead.
  virtual void connection_failed(std::uint32_t end) = 0;
};

class Transport final : public NetworkUser {
 public:
  Transport(const Plan& plan, EventQueue& events, TransportUser& user);
  void attach(Network& network) noexcept { network_ = &network; }

  // Ends of a connection are neighbours: end ^ 1 is the other one.
  void post(std::uint32_t number, Message message);
  // The process is gone: queued messages too, and packets that still come are ignored.
  void destroy(std::uint32_t number);
  void on_event(const Event& event);

  bool next_segment(std::uint32_t number, std::uint32_t packets, Segment& segment) override;
  [[nodiscard]] bool has_more(std::uint32_t number) const override;
  void receive(const Segment& segment) override;

  // Present rate of an end as a share of its NIC's.
  [[nodiscard]] double rate_share(std::uint32_t end);
  [[nodiscard]] std::uint64_t retransmitted() const noexcept { return retransmitted_; }
  [[nodiscard]] std::uint64_t notifications() const noexcept { return notifications_; }

 private:
  // DCQCN at the sender; idle until the first notification and once the full rate is back.
  struct Rate {
    double current = 1.0;
    double target = 1.0;
    double alpha = 1.0;
    Picoseconds alpha_since_ps = 0;
    Picoseconds increase_since_ps = 0;
    std::uint64_t bytes = 0;
    std::uint32_t timer_rounds = 0;
    std::uint32_t byte_rounds = 0;
    bool reduced = false;
  };

  // What an ACK of its own tells.
  struct Answer {
    std::uint64_t index = 0;
    std::uint32_t msn = 0;
  };

  struct End {
    // requester
    RingQueue<Message> queue;
    std::size_t cursor = 0;  // message of the next packet
    std::uint64_t next = 0;
    std::uint64_t tail = 0;
    std::uint64_t acked = 0;
    std::uint64_t highest_sent = 0;
    Picoseconds deadline_ps = 0;
    Picoseconds eligible_ps = 0;
    std::uint32_t retries = 0;
    bool timer_armed = false;
    bool wake_pending = false;
    bool failed = false;
    Rate rate;
    // responder
    std::uint64_t expected = 0;
    std::uint32_t msn = 0;
    bool nak_sent = false;
    bool ack_pending = false;
    Picoseconds previous_ack_ps = 0;
    RingQueue<Answer> answers;  // without coalescing: ACKs that are under way to the wire
    Picoseconds previous_cnp_ps = -1;
    Random random{0};
  };

  void fill(std::uint32_t number, const Message& message, std::uint32_t offset, std::uint32_t count, Segment& segment);
  [[nodiscard]] bool asks_for_ack(std::uint32_t offset, std::uint32_t count, std::uint32_t packets) const;
  void arm_timer(std::uint32_t number);
  void on_timer(std::uint32_t number);
  void on_response(End& end, std::uint32_t number, const PacketRun& run);
  void release(End& end);
  void go_back(std::uint32_t number);
  void on_request(std::uint32_t number, const Segment& segment);
  void acknowledge(std::uint32_t number);
  void send_acknowledge(std::uint32_t number);
  void respond(std::uint32_t number, Verb verb, const Answer& answer, std::uint8_t syndrome);
  void notify_congestion(std::uint32_t number);
  void cut_rate(Rate& rate) const;
  void recover_rate(Rate& rate) const;
  void increase_rate(Rate& rate) const;
  void pace(End& end, std::uint32_t number, std::uint32_t bytes) const;

  const Plan& plan_;
  EventQueue& events_;
  TransportUser& user_;
  Network* network_ = nullptr;
  std::vector<End> ends_;
  std::uint64_t retransmitted_ = 0;
  std::uint64_t notifications_ = 0;
};

}  // namespace pulse::sim
