// SPDX-License-Identifier: Apache-2.0
//
// A CRC register is a polynomial over GF(2) modulo the generator, bit 31 its
// constant term. Feeding n bytes multiplies the register by x^(8n) and adds the
// CRC of the bytes alone. Both are known per payload length, so a payload of any
// length costs one multiplication.
#include "sim/packet_crc.hpp"

#include <algorithm>
#include <array>

namespace pulse::sim {
namespace {

constexpr std::uint32_t kGenerator = 0xedb88320U;
constexpr std::uint32_t kOne = 0x80000000U;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 96;
constexpr std::byte kMasked{0xff};

using Table = std::array<std::uint32_t, 256>;

// Table k: the effect of a byte that k more bytes follow.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t index = 0; index < 256; ++index) {
    std::uint32_t crc = index;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kGenerator : 0U);
    }
    tables[0][index] = crc;
  }
  for (std::size_t table = 1; table < tables.size(); ++table) {
    for (std::size_t index = 0; index < 256; ++index) {
      const std::uint32_t crc = tables[table - 1][index];
      tables[table][index] = (crc >> 8) ^ tables[0][crc & 0xffU];
    }
  }
  return tables;
}

constexpr auto kTables = make_tables();

constexpr std::uint32_t feed(std::uint32_t crc, std::uint32_t byte) noexcept {
  return (crc >> 8) ^ kTables[0][(crc ^ byte) & 0xffU];
}

// Eight 0xff bytes stand for the local route header that only InfiniBand has.
constexpr std::uint32_t route_header_state() {
  std::uint32_t crc = 0xffffffffU;
  for (int index = 0; index < 8; ++index) {
    crc = feed(crc, 0xffU);
  }
  return crc;
}

constexpr std::uint32_t kRouteHeaderState = route_header_state();

std::uint32_t load(const std::byte* at) noexcept {
  return std::to_integer<std::uint32_t>(at[0]) | std::to_integer<std::uint32_t>(at[1]) << 8 |
         std::to_integer<std::uint32_t>(at[2]) << 16 | std::to_integer<std::uint32_t>(at[3]) << 24;
}

std::uint32_t feed(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  while (bytes.size() >= 8) {
    const std::uint32_t low = crc ^ load(bytes.data());
    const std::uint32_t high = load(bytes.data() + 4);
    crc = kTables[7][low & 0xffU] ^ kTables[6][low >> 8 & 0xffU] ^ kTables[5][low >> 16 & 0xffU] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xffU] ^ kTables[2][high >> 8 & 0xffU] ^
          kTables[1][high >> 16 & 0xffU] ^ kTables[0][high >> 24];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    crc = feed(crc, std::to_integer<std::uint32_t>(byte));
  }
  return crc;
}

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (int bit = 0; bit < 32; ++bit) {
    product ^= b & (0U - (a >> 31));
    a <<= 1;
    b = (b >> 1) ^ (kGenerator & (0U - (b & 1U)));
  }
  return product;
}

void mask(std::span<std::byte> headers, std::size_t ip_bytes) noexcept {
  if (ip_bytes == 40) {
    headers[0] |= std::byte{0x0f};  // traffic class and flow label
    std::fill_n(headers.begin() + 1, 3, kMasked);
    headers[7] = kMasked;  // hop limit
  } else {
    headers[1] = kMasked;   // TOS
    headers[8] = kMasked;   // TTL
    headers[10] = kMasked;  // checksum
    headers[11] = kMasked;
  }
  headers[ip_bytes + 6] = kMasked;  // UDP checksum
  headers[ip_bytes + 7] = kMasked;
  headers[ip_bytes + kUdpBytes + 4] = kMasked;  // FECN, BECN and reserved bits of the BTH
}

}  // namespace

const PacketCrc::Payload& PacketCrc::payload(std::uint32_t payload_bytes) {
  Payload& known = payloads_[payload_bytes];
  if (known.advance == 0) {
    known = {kOne, 0};
    const std::uint32_t padded_bytes = (payload_bytes + 3U) & ~3U;
    for (std::uint32_t index = 0; index < padded_bytes; ++index) {
      known.own = feed(known.own, index < payload_bytes ? payload_byte_ : 0U);
      known.advance = feed(known.advance, 0U);
    }
  }
  return known;
}

std::uint32_t PacketCrc::icrc(std::span<const std::byte> headers, std::size_t ip_bytes, std::uint32_t payload_bytes) {
  std::array<std::byte, kMaxHeaderBytes> masked;
  std::copy(headers.begin(), headers.end(), masked.begin());
  mask(masked, ip_bytes);
  std::uint32_t crc = feed(kRouteHeaderState, std::span(masked).first(headers.size()));
  if (payload_bytes != 0) {
    const Payload& rest = payload(payload_bytes);
    crc = multiply(rest.advance, crc) ^ rest.own;
  }
  return ~crc;
}

}  // namespace pulse::sim
