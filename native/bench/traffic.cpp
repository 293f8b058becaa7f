// SPDX-License-Identifier: Apache-2.0
#include "traffic.hpp"

#include <algorithm>
#include <stdexcept>

#include "pulse/marker_hash.hpp"
#include "pulse/opcode.hpp"

namespace pulse::bench {

namespace {

constexpr std::size_t kIpAt = 14;
constexpr std::size_t kUdpAt = kIpAt + 20;
constexpr std::size_t kBthAt = kUdpAt + 8;
constexpr std::size_t kExtensionAt = kBthAt + 12;
constexpr std::uint32_t kIcrcBytes = 4;
constexpr std::uint32_t kBthBytes = 12;
constexpr std::uint32_t kRethBytes = 16;
constexpr std::uint32_t kAethBytes = 4;
constexpr std::uint32_t kEthernetOverhead = 24;  // preamble, FCS and gap, which take time on the wire
constexpr std::uint32_t kPeers = 64;
constexpr std::int64_t kStartPs = 1'700'000'000'000'000'000;  // twenty days, in picoseconds
constexpr std::int64_t kAckDelayPs = 10'000'000;

void put(std::byte* at, std::uint32_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
}

}  // namespace

Traffic::Traffic(const TrafficConfig& config)
    : config_(config),
      message_packets_(std::max(2U, config.message_bytes / std::max(1U, config.mtu))),
      now_ps_(kStartPs),
      random_(mix64(config.seed)) {
  if (config.flows < 2 || config.flows % 2 != 0 || config.mtu < 256 || config.train_packets == 0 ||
      !(config.gigabits > 0) || config.snap < kExtensionAt + kRethBytes) {
    throw std::invalid_argument("benchmark traffic: flows must be even, mtu >= 256, trains of >= 1 packet, snap >= 70");
  }
  flows_.resize(config.flows);
  for (Flow& flow : flows_) {
    flow.psn = static_cast<std::uint32_t>(draw()) & 0xffffffU;
    flow.at = static_cast<std::uint32_t>(draw() % message_packets_);
    flow.msn = 0;
  }
}

std::uint64_t Traffic::draw() noexcept { return mix64(random_ += 0x9e3779b97f4a7c15U); }

void Traffic::fill(PacketBatch& batch, std::size_t packets, std::vector<std::uint32_t>& flows) {
  batch.clear();
  batch.reserve(packets + 64, (packets + 64) * config_.snap);
  flows.clear();
  while (batch.size() < packets) {
    send_due_acks(batch, flows);
    send_data(batch, flows);
  }
}

void Traffic::send_data(PacketBatch& batch, std::vector<std::uint32_t>& flows) {
  if (left_in_train_ == 0) {
    current_ = static_cast<std::uint32_t>((draw() >> 32) * config_.flows >> 32);
    left_in_train_ = config_.train_packets;
  }
  --left_in_train_;
  Flow& flow = flows_[current_];
  const bool first = flow.at == 0;
  const bool last = flow.at + 1 == message_packets_;
  const std::uint32_t ib_bytes = kBthBytes + (first ? kRethBytes : 0) + config_.mtu + kIcrcBytes;
  if (first || last || !config_.steered) {
    const unsigned opcode = first ? operation::kWriteFirst : last ? operation::kWriteLast : operation::kWriteMiddle;
    std::byte* packet = append(batch, current_, ib_bytes, static_cast<std::uint8_t>(opcode), flow.psn, last);
    if (first) put(packet + kExtensionAt + 12, message_packets_ * config_.mtu, 4);
    flows.push_back(current_);
  }
  // Both directions share the line of time: on average a packet goes every half packet time.
  const double bits = (ib_bytes + kBthAt + kEthernetOverhead) * 8.0;
  now_ps_ += static_cast<std::int64_t>(bits * 1000.0 / (2 * config_.gigabits));
  if (last) {
    flow.msn = (flow.msn + 1) & 0xffffffU;
    acks_.push_back({now_ps_ + kAckDelayPs, current_ ^ 1U, flow.psn, flow.msn});
  }
  flow.at = last ? 0 : flow.at + 1;
  flow.psn = (flow.psn + 1) & 0xffffffU;
}

void Traffic::send_due_acks(PacketBatch& batch, std::vector<std::uint32_t>& flows) {
  for (; !acks_.empty() && acks_.front().due_ps <= now_ps_; acks_.pop_front()) {
    const Ack& ack = acks_.front();
    std::byte* packet = append(batch, ack.flow, kBthBytes + kAethBytes + kIcrcBytes,
                               static_cast<std::uint8_t>(operation::kAcknowledge), ack.psn, false);
    put(packet + kExtensionAt, 0x1f, 1);
    put(packet + kExtensionAt + 1, ack.msn, 3);
    flows.push_back(ack.flow);
  }
}

// The headers up to BTH; the rest of the kept bytes stays zero.
std::byte* Traffic::append(PacketBatch& batch, std::uint32_t flow, std::uint32_t ib_bytes, std::uint8_t opcode,
                           std::uint32_t psn, bool ack_req) {
  const std::uint32_t wire = static_cast<std::uint32_t>(kBthAt) + ib_bytes;
  std::byte* at = batch.append_blank(now_ps_ / 1000, wire, LinkType::ethernet, std::min(wire, config_.snap)).data();
  put(at + 12, 0x0800, 2);
  std::byte* ip = at + kIpAt;
  put(ip, 0x45, 1);
  put(ip + 1, 0x68 | 2, 1);
  put(ip + 2, 20 + 8 + ib_bytes, 2);
  put(ip + 6, 0x4000, 2);
  put(ip + 8, 64, 1);
  put(ip + 9, 17, 1);
  const std::uint32_t own = 0x0a000001;
  const std::uint32_t peer = 0x0a010000 + (flow / 2) % kPeers;
  put(ip + 12, flow % 2 == 0 ? own : peer, 4);
  put(ip + 16, flow % 2 == 0 ? peer : own, 4);
  put(at + kUdpAt, 0xc000 + flow % 0x3fff, 2);
  put(at + kUdpAt + 2, 4791, 2);
  put(at + kUdpAt + 4, 8 + ib_bytes, 2);
  std::byte* bth = at + kBthAt;
  put(bth, opcode, 1);
  put(bth + 2, 0xffff, 2);
  put(bth + 5, 0x1000 + flow, 3);
  put(bth + 8, ack_req ? 0x80 : 0, 1);
  put(bth + 9, psn, 3);
  return at;
}

}  // namespace pulse::bench
