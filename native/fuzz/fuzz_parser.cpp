// SPDX-License-Identifier: Apache-2.0
//
// Any packet: the parser reads nothing behind its end (the sanitizer sees that)
// and a packet that is not RoCE leaves nothing half parsed.
#include <array>
#include <cstring>
#include <vector>

#include "fuzz_input.hpp"
#include "pulse/packet_parser.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array kLinkTypes = {pulse::LinkType::ethernet, pulse::LinkType::linux_sll,
                                     pulse::LinkType::linux_sll2};
  if (size == 0) {
    return 0;
  }
  const pulse::LinkType link_type = kLinkTypes[data[0] % kLinkTypes.size()];
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  const std::vector<std::byte> packet(input.begin(), input.end());

  pulse::PacketRecord record{};
  const pulse::ParseOutcome outcome = pulse::parse_packet(packet, link_type, 64, record);
  pulse::PacketRecord empty{};
  empty.wire_bytes = 64;
  empty.outcome = static_cast<std::uint8_t>(outcome);
  const bool is_empty = std::memcmp(&record, &empty, sizeof(record)) == 0;
  const bool is_roce = outcome == pulse::ParseOutcome::roce;
  pulse::fuzz::require(record.outcome < pulse::kParseOutcomes);
  pulse::fuzz::require(is_empty != is_roce && record.payload_bytes <= 0xffffU);
  return 0;
}
