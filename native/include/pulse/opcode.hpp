// SPDX-License-Identifier: Apache-2.0
//
// BTH opcodes: the transport in the top three bits, the operation in the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pulse {

enum class Transport : std::uint8_t { rc = 0, uc = 1, rd = 2, ud = 3 };

// Operations as they stand in the low five bits.
namespace operation {
inline constexpr std::uint8_t kSendFirst = 0x00;
inline constexpr std::uint8_t kSendMiddle = 0x01;
inline constexpr std::uint8_t kSendLast = 0x02;
inline constexpr std::uint8_t kSendLastImmediate = 0x03;
inline constexpr std::uint8_t kSendOnly = 0x04;
inline constexpr std::uint8_t kSendOnlyImmediate = 0x05;
inline constexpr std::uint8_t kWriteFirst = 0x06;
inline constexpr std::uint8_t kWriteMiddle = 0x07;
inline constexpr std::uint8_t kWriteLast = 0x08;
inline constexpr std::uint8_t kWriteLastImmediate = 0x09;
inline constexpr std::uint8_t kWriteOnly = 0x0a;
inline constexpr std::uint8_t kWriteOnlyImmediate = 0x0b;
inline constexpr std::uint8_t kReadRequest = 0x0c;
inline constexpr std::uint8_t kReadResponseFirst = 0x0d;
inline constexpr std::uint8_t kReadResponseMiddle = 0x0e;
inline constexpr std::uint8_t kReadResponseLast = 0x0f;
inline constexpr std::uint8_t kReadResponseOnly = 0x10;
inline constexpr std::uint8_t kAcknowledge = 0x11;
inline constexpr std::uint8_t kAtomicAcknowledge = 0x12;
inline constexpr std::uint8_t kCompareSwap = 0x13;
inline constexpr std::uint8_t kFetchAdd = 0x14;
inline constexpr std::uint8_t kSendLastInvalidate = 0x16;
inline constexpr std::uint8_t kSendOnlyInvalidate = 0x17;
}  // namespace operation

inline constexpr std::uint8_t kCnp = 0x81;

// Which extension headers follow the BTH, in the order in which they stand there.
enum ExtensionHeader : std::uint8_t {
  kDeth = 1,           // 8 bytes
  kReth = 2,           // 16
  kAeth = 4,           // 4
  kAtomicEth = 8,      // 28
  kAtomicAckEth = 16,  // 8
  kImmediate = 32,     // 4
  kIeth = 64,          // 4
};

struct OpcodeLayout {
  std::uint8_t headers = 0;       // ExtensionHeader bits
  std::uint8_t header_bytes = 0;  // their sum
  bool known = false;
  bool payload = false;
};

// Layout of each opcode; `known` is false for values that are no RC, UC or UD
// operation. The CNP is known and has neither headers nor payload here: the 16
// bytes after its BTH are reserved.
[[nodiscard]] const OpcodeLayout& opcode_layout(std::uint8_t opcode) noexcept;

}  // namespace pulse
