// SPDX-License-Identifier: Apache-2.0
//
// What travels through the simulated network, and what a tap sees of it.
//
// Times are int64 picoseconds of true time since the simulation began: one byte
// at 400 Gbit/s lasts 20 ps, and an int64 holds 106 days.
#pragma once

#include <cstdint>

namespace pulse::sim {

using Picoseconds = std::int64_t;

enum class Verb : std::uint8_t {
  write,        // RDMA WRITE
  write_imm,    // RDMA WRITE whose last packet carries an immediate
  send,         // SEND
  fetch_add,    // atomic request
  acknowledge,  // ACK or NAK, by syndrome
  atomic_ack,   // response to an atomic
  cnp,          // congestion notification
};

// Consecutive packets of one message, or one response. In packet mode `count` is 1.
struct PacketRun {
  std::uint64_t index = 0;    // unwrapped sequence number of the first packet; of a response: what it answers
  std::uint64_t address = 0;  // RETH or AtomicETH
  std::uint32_t end = 0;      // the connection end that sends it (see EndAddress)
  std::uint32_t remote_key = 0;
  std::uint32_t immediate = 0;
  std::uint32_t message_bytes = 0;    // payload of the whole message
  std::uint32_t message_packets = 1;  // packets of the whole message
  std::uint32_t offset = 0;           // packets of the message before this run
  std::uint32_t count = 1;            // packets in this run
  std::uint32_t msn = 0;              // responses only
  std::uint16_t ip_id = 0;            // of the first packet; the next ones count up
  Verb verb = Verb::write;
  std::uint8_t syndrome = 0;     // responses only
  bool congestion_mark = false;  // marked by a switch: only taps behind it show the mark
  bool ack_request = false;      // of the last packet of the run; the others never ask in between
};

// A run as one tap saw it.
struct Sighting {
  PacketRun run;
  Picoseconds first_ps = 0;    // when the first packet had passed the tap
  Picoseconds spacing_ps = 0;  // between packets of the run
  Picoseconds queued_ps = 0;   // sent runs: when the NIC took it up, before any shaper
  bool sent = false;           // else received
};

// Addresses of one end of a connection, as its packets carry them.
struct EndAddress {
  std::uint32_t nic = 0;             // index of the NIC that it lives on
  std::uint32_t peer_nic = 0;        // where its packets go
  std::uint32_t dest_qpn = 0;        // queue pair number of the other end
  std::uint32_t start_psn = 0;       // header PSN of requests = (start_psn + index) mod 2^24
  std::uint32_t peer_start_psn = 0;  // header PSN of responses, likewise
  std::uint16_t udp_source_port = 0;
};

// Addresses of one NIC.
struct NicAddress {
  std::uint8_t mac[6] = {};
  std::uint8_t ipv6[16] = {};
  std::uint32_t ipv4 = 0;  // host order
};

}  // namespace pulse::sim
