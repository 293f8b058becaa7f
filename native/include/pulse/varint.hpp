// SPDX-License-Identifier: Apache-2.0
//
// Variable-length integers: LEB128 (seven bits per byte, least significant
// first, high bit set on every byte but the last) and the zigzag mapping that
// makes small negative numbers short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pulse {

inline constexpr std::size_t kMaxVarintBytes = 10;

// Writes `value` at `out`, which has room for kMaxVarintBytes; returns the bytes written.
inline std::size_t put_varint(std::uint8_t* out, std::uint64_t value) noexcept {
  std::size_t size = 0;
  while (value >= 0x80) {
    out[size++] = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  out[size++] = static_cast<std::uint8_t>(value);
  return size;
}

[[nodiscard]] constexpr std::uint64_t zigzag(std::int64_t value) noexcept {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}

[[nodiscard]] constexpr std::int64_t unzigzag(std::uint64_t value) noexcept {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Reads varints from bytes that may be damaged: nothing past the end is touched.
class VarintReader {
 public:
  explicit VarintReader(std::span<const std::uint8_t> bytes) noexcept : bytes_(bytes) {}

  // The next number, or nothing when the bytes end inside it or it exceeds 64 bits.
  [[nodiscard]] std::optional<std::uint64_t> next() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (position_ == bytes_.size()) return std::nullopt;
      const std::uint8_t byte = bytes_[position_++];
      if (shift == 63 && byte > 1) return std::nullopt;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  // The next byte, and the next `size` bytes; there are as many.
  [[nodiscard]] std::uint8_t byte() noexcept { return bytes_[position_++]; }
  [[nodiscard]] std::span<const std::uint8_t> take(std::size_t size) noexcept {
    position_ += size;
    return bytes_.subspan(position_ - size, size);
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size() - position_; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t position_ = 0;
};

}  // namespace pulse
