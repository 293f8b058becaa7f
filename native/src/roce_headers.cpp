// SPDX-License-Identifier: Apache-2.0
#include "roce_headers.hpp"

#include "pulse/byte_order.hpp"
#include "pulse/opcode.hpp"

namespace pulse {
namespace {

constexpr std::size_t kBthBytes = 12;
constexpr std::size_t kIcrcBytes = 4;

// `at` is the first extension header; all of them were captured.
void read_extensions(const std::byte* at, std::uint8_t headers, PacketRecord& record) noexcept {
  for (const HeaderSize& entry : kHeaderOrder) {
    if ((headers & entry.header) == 0) {
      continue;
    }
    switch (entry.header) {
      case kDeth:
        record.src_qpn = load_big24(at + 5);
        break;
      case kReth:
        record.dma_bytes = load_big<std::uint32_t>(at + 12);
        break;
      case kAeth:
        record.syndrome = std::to_integer<std::uint8_t>(at[0]);
        record.msn = load_big24(at + 1);
        break;
      case kImmediate:
        record.immediate = load_big<std::uint32_t>(at);
        break;
      case kAtomicEth:
      case kAtomicAckEth:
      case kIeth:
        break;  // nothing in them that the meter needs
    }
    at += entry.bytes;
  }
}

}  // namespace

const OpcodeLayout& opcode_layout(std::uint8_t opcode) noexcept { return kOpcodeLayouts[opcode]; }

ParseOutcome parse_roce_headers(std::span<const std::byte> captured, std::size_t udp_payload_bytes,
                                PacketRecord& record) noexcept {
  if (udp_payload_bytes < kBthBytes + kIcrcBytes) {
    return ParseOutcome::bad_udp_length;
  }
  if (captured.size() < kBthBytes) {
    return ParseOutcome::truncated_headers;
  }
  const std::byte* bth = captured.data();
  const auto opcode = std::to_integer<std::uint8_t>(bth[0]);
  const auto flags = std::to_integer<unsigned>(bth[1]);
  const OpcodeLayout& known = kOpcodeLayouts[opcode];
  if ((flags & 0x0fU) != 0) {
    return ParseOutcome::bad_bth;
  }
  if (!known.known) {
    return ParseOutcome::unknown_opcode;
  }
  const std::size_t pad_bytes = (flags >> 4) & 3U;
  const std::size_t overhead_bytes = kBthBytes + known.header_bytes + pad_bytes + kIcrcBytes;
  if (udp_payload_bytes < overhead_bytes) {
    return ParseOutcome::bad_udp_length;
  }
  if (captured.size() < kBthBytes + known.header_bytes) {
    return ParseOutcome::truncated_headers;
  }
  record.opcode = opcode;
  record.dest_qpn = load_big24(bth + 5);
  record.ack_req = static_cast<std::uint8_t>(std::to_integer<unsigned>(bth[8]) >> 7);
  record.psn = load_big24(bth + 9);
  record.payload_bytes = known.payload ? static_cast<std::uint32_t>(udp_payload_bytes - overhead_bytes) : 0;
  read_extensions(bth + kBthBytes, known.headers, record);
  return ParseOutcome::roce;
}

}  // namespace pulse
