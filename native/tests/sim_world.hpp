// SPDX-License-Identifier: Apache-2.0
//
// Two NICs with one connection between them, for tests of the simulator's tap.
#pragma once

#include <cstdint>
#include <vector>

#include "pulse/packet_batch.hpp"
#include "sim/packet_run.hpp"

namespace pulse::test {

// NIC n: 10.0.0.(n + 1), fd00::(n + 1), 02:00:00:00:00:(n + 1).
inline sim::NicAddress nic(std::uint8_t index) {
  sim::NicAddress address;
  const auto number = static_cast<std::uint8_t>(index + 1);
  address.mac[0] = 2;
  address.mac[5] = number;
  address.ipv6[0] = 0xfd;
  address.ipv6[15] = number;
  address.ipv4 = 0x0a000000U + number;
  return address;
}

inline const std::vector<sim::NicAddress> kNics = {nic(0), nic(1)};

// End 0 of NIC 0 sends to queue pair 0x123 from PSN 0xfffffe on, end 1 of NIC 1 to 0x456 from PSN 7 on.
inline const std::vector<sim::EndAddress> kEnds = {{0, 1, 0x123, 0xfffffe, 7, 49152},
                                                   {1, 0, 0x456, 7, 0xfffffe, 49152}};

inline sim::PacketRun data_run(sim::Verb verb, std::uint32_t message_bytes, std::uint32_t message_packets) {
  sim::PacketRun run;
  run.verb = verb;
  run.message_bytes = message_bytes;
  run.message_packets = message_packets;
  run.count = message_packets;
  run.address = 0x7f0000001000;
  run.remote_key = 0x1234;
  run.immediate = 0x2000;
  return run;
}

inline sim::PacketRun response_run(sim::Verb verb, std::uint64_t index, std::uint8_t syndrome, std::uint32_t msn) {
  sim::PacketRun run;
  run.end = 1;
  run.verb = verb;
  run.index = index;
  run.syndrome = syndrome;
  run.msn = msn;
  return run;
}

inline std::vector<std::byte> bytes_of(const PacketBatch& batch, std::size_t index) {
  const auto data = batch.data(index);
  return {data.begin(), data.end()};
}

}  // namespace pulse::test
