// SPDX-License-Identifier: Apache-2.0
//
// Vectors: two packets of public captures, then packets of this project's own
// making that were checked with a second implementation.
#include "pulse/icrc.hpp"

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "check.hpp"

namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
  Bytes result;
  for (const int value : values) {
    result.push_back(static_cast<std::byte>(value));
  }
  return result;
}

// The four bytes as they stand in the packet, first byte first.
std::uint32_t wire(std::initializer_list<int> values) {
  std::uint32_t result = 0;
  int shift = 0;
  for (const int value : values) {
    result |= static_cast<std::uint32_t>(value) << shift;
    shift += 8;
  }
  return result;
}

TEST("ICRC of a UC SEND_ONLY equals the captured one") {
  const Bytes packet = bytes({
      0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5,  // IPv4
      0xc0, 0xa8, 0x00, 0x07, 0xc0, 0xa8, 0x00, 0x07,                          //
      0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2,                          // UDP
      0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10,  // BTH
      0x46, 0x30, 0x81, 0x8b, 0xe2, 0x89, 0x35, 0xd9, 0x0e, 0x9a, 0x95, 0x50,  // payload
      0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00,
  });
  CHECK_EQ(pulse::icrc(packet), wire({0x78, 0xf3, 0x53, 0xf3}));
}

TEST("ICRC of a CNP equals the captured one, whatever routers did to TOS, TTL and checksum") {
  Bytes packet = bytes({
      0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61,  // IPv4
      0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00, 0x12, 0x01,                          //
      0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00,                          // UDP
      0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00,  // BTH
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
  });
  CHECK_EQ(pulse::icrc(packet), wire({0x82, 0xfd, 0x00, 0x2a}));
  packet[1] = std::byte{0x03};
  packet[8] = std::byte{0x3d};
  packet[10] = std::byte{0};
  packet[32] = std::byte{0x80};  // FECN instead of BECN
  CHECK_EQ(pulse::icrc(packet), wire({0x82, 0xfd, 0x00, 0x2a}));
  packet[22] = std::byte{0x12};  // a port is covered
  packet[23] = std::byte{0xb8};
  CHECK(pulse::icrc(packet) != wire({0x82, 0xfd, 0x00, 0x2a}));
}

TEST("ICRC of bytes that are no RoCE packet is refused") {
  CHECK(!pulse::icrc({}).has_value());
  CHECK(!pulse::icrc(bytes({0x45, 0, 0, 20})).has_value());
  CHECK(!pulse::icrc(Bytes(100)).has_value());
  CHECK(!pulse::icrc(Bytes(100, std::byte{0x41})).has_value());  // header shorter than 20 bytes
  CHECK(!pulse::icrc(Bytes(59, std::byte{0x60})).has_value());   // BTH one byte short
  CHECK(pulse::icrc(Bytes(60, std::byte{0x60})).has_value());
}

}  // namespace
