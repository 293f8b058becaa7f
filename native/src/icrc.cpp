// SPDX-License-Identifier: Apache-2.0
#include "pulse/icrc.hpp"

#include <algorithm>
#include <array>

namespace pulse {
namespace {

constexpr std::size_t kIpv4MinBytes = 20;
constexpr std::size_t kIpv4MaxBytes = 60;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kBthBytes = 12;
constexpr std::byte kMasked{0xff};

// CRC-32 with the reflected polynomial of Ethernet and zlib, one byte a step.
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t index = 0; index < table.size(); ++index) {
    std::uint32_t crc = index;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
    }
    table[index] = crc;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

std::uint32_t update(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  }
  return crc;
}

// Bytes of the IP header, or 0 when it is not one that UDP follows directly.
std::size_t ip_header_bytes(std::span<const std::byte> packet) noexcept {
  if (packet.empty()) {
    return 0;
  }
  const auto version_ihl = std::to_integer<unsigned>(packet[0]);
  if (version_ihl >> 4 == 6) {
    return kIpv6Bytes;
  }
  const std::size_t bytes = std::size_t{version_ihl & 0x0fU} * 4U;
  return version_ihl >> 4 == 4 && bytes >= kIpv4MinBytes ? bytes : 0;
}

void mask_ip(std::span<std::byte> header) noexcept {
  if (header.size() == kIpv6Bytes && std::to_integer<unsigned>(header[0]) >> 4 == 6) {
    header[0] |= std::byte{0x0f};  // traffic class and flow label
    std::fill_n(header.begin() + 1, 3, kMasked);
    header[7] = kMasked;  // hop limit
    return;
  }
  header[1] = kMasked;   // TOS
  header[8] = kMasked;   // TTL
  header[10] = kMasked;  // checksum
  header[11] = kMasked;
}

}  // namespace

std::optional<std::uint32_t> icrc(std::span<const std::byte> ip_packet) noexcept {
  const std::size_t ip_bytes = ip_header_bytes(ip_packet);
  const std::size_t masked_bytes = ip_bytes + kUdpBytes + kBthBytes;
  if (ip_bytes == 0 || ip_packet.size() < masked_bytes) {
    return std::nullopt;
  }
  std::array<std::byte, kIpv4MaxBytes + kUdpBytes + kBthBytes> headers{};
  std::copy_n(ip_packet.begin(), masked_bytes, headers.begin());
  mask_ip(std::span(headers).first(ip_bytes));
  headers[ip_bytes + 6] = kMasked;  // UDP checksum
  headers[ip_bytes + 7] = kMasked;
  headers[ip_bytes + kUdpBytes + 4] = kMasked;  // FECN, BECN and reserved bits of the BTH

  // Eight bytes stand for the local route header that only InfiniBand has.
  constexpr std::array<std::byte, 8> kRouteHeader = {kMasked, kMasked, kMasked, kMasked,
                                                     kMasked, kMasked, kMasked, kMasked};
  std::uint32_t crc = update(0xffffffffU, kRouteHeader);
  crc = update(crc, std::span(headers).first(masked_bytes));
  crc = update(crc, ip_packet.subspan(masked_bytes));
  return ~crc;
}

}  // namespace pulse
