// SPDX-License-Identifier: Apache-2.0
//
// Packets for the benchmark of the packet path: RDMA WRITE messages at line rate in
// both directions of one port, as header bytes in a batch. Messages run on from batch
// to batch, so a meter sees flows that live, not the same second again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "pulse/packet_batch.hpp"

namespace pulse::bench {

struct TrafficConfig {
  std::uint32_t flows = 2000;  // even: a flow and its reverse are neighbours, and both carry data
  std::uint32_t mtu = 4096;
  std::uint32_t train_packets = 1;  // packets of one flow in a row; 1: each packet's flow is drawn anew
  std::uint32_t message_bytes = 1U << 20;
  double gigabits = 400;     // of each direction
  bool steered = false;      // only what a steered capture would hold
  std::uint32_t snap = 128;  // bytes kept of a packet
  std::uint64_t seed = 1;
};

class Traffic {
 public:
  // Throws std::invalid_argument when the configuration makes no sense.
  explicit Traffic(const TrafficConfig& config);

  // Makes `batch` hold the next `packets` packets, and `flows` the number of each packet's flow.
  void fill(PacketBatch& batch, std::size_t packets, std::vector<std::uint32_t>& flows);

  [[nodiscard]] std::int64_t now_ns() const noexcept { return static_cast<std::int64_t>(now_ps_ / 1000); }

 private:
  struct Flow {
    std::uint32_t psn;
    std::uint32_t at;  // packets of the open message that have gone
    std::uint32_t msn;
  };
  struct Ack {
    std::int64_t due_ps;
    std::uint32_t flow;  // that sends it
    std::uint32_t psn;
    std::uint32_t msn;
  };

  [[nodiscard]] std::uint64_t draw() noexcept;
  void send_data(PacketBatch& batch, std::vector<std::uint32_t>& flows);
  void send_due_acks(PacketBatch& batch, std::vector<std::uint32_t>& flows);
  std::byte* append(PacketBatch& batch, std::uint32_t flow, std::uint32_t ib_bytes, std::uint8_t opcode,
                    std::uint32_t psn, bool ack_req);

  TrafficConfig config_;
  std::uint32_t message_packets_;
  std::vector<Flow> flows_;
  std::deque<Ack> acks_;
  std::int64_t now_ps_;
  std::uint64_t random_;
  std::uint32_t current_ = 0;
  std::uint32_t left_in_train_ = 0;
};

}  // namespace pulse::bench
