// SPDX-License-Identifier: Apache-2.0
//
// The invariant CRC of packets whose payload is one byte repeated: the time for
// a packet does not grow with its payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pulse::sim {

class PacketCrc {
 public:
  PacketCrc(std::uint8_t payload_byte, std::uint32_t max_payload_bytes)
      : payload_byte_(payload_byte), payloads_(std::size_t{max_payload_bytes} + 1) {}

  // Of a packet with `headers` from the IP header to the last extension header, and `payload_bytes` of payload,
  // at most the given maximum, then padded with zeros to a multiple of four. `ip_bytes` is 20 or 40.
  [[nodiscard]] std::uint32_t icrc(std::span<const std::byte> headers, std::size_t ip_bytes,
                                   std::uint32_t payload_bytes);

 private:
  // What padded payload of one length does to a CRC register: register * advance + own.
  struct Payload {
    std::uint32_t advance = 0;  // never 0 once known
    std::uint32_t own = 0;
  };

  const Payload& payload(std::uint32_t payload_bytes);

  std::uint8_t payload_byte_;
  std::vector<Payload> payloads_;  // by length, filled on first use
};

}  // namespace pulse::sim
