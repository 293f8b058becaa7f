// SPDX-License-Identifier: Apache-2.0
//
// Unaligned loads of integers in a stated byte order. Callers check the bounds.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pulse {

static_assert(std::endian::native == std::endian::little, "records and frames are little endian in memory");

[[nodiscard]] constexpr std::uint8_t byte_swap(std::uint8_t value) noexcept { return value; }
[[nodiscard]] constexpr std::uint16_t byte_swap(std::uint16_t value) noexcept { return __builtin_bswap16(value); }
[[nodiscard]] constexpr std::uint32_t byte_swap(std::uint32_t value) noexcept { return __builtin_bswap32(value); }
[[nodiscard]] constexpr std::uint64_t byte_swap(std::uint64_t value) noexcept { return __builtin_bswap64(value); }

template <std::unsigned_integral T>
[[nodiscard]] inline T load_little(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <std::unsigned_integral T>
[[nodiscard]] inline T load_big(const std::byte* from) noexcept {
  return byte_swap(load_little<T>(from));
}

// Network order, 24 bits: queue pair numbers, PSN and MSN.
[[nodiscard]] inline std::uint32_t load_big24(const std::byte* from) noexcept {
  return static_cast<std::uint32_t>(load_big<std::uint16_t>(from)) << 8U | std::to_integer<std::uint32_t>(from[2]);
}

// For files whose byte order is known only after their first bytes.
template <std::unsigned_integral T>
[[nodiscard]] inline T load(const std::byte* from, std::endian order) noexcept {
  const T value = load_little<T>(from);
  return order == std::endian::little ? value : byte_swap(value);
}

}  // namespace pulse
