// SPDX-License-Identifier: Apache-2.0
//
// Building byte strings for tests: big-endian integers unless said otherwise.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace pulse::test {

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::initializer_list<int> values) {
    for (const int value : values) {
      bytes_.push_back(static_cast<std::byte>(value));
    }
  }

  Bytes& u8(std::uint64_t value) { return put(value, 1, std::endian::big); }
  Bytes& u16(std::uint64_t value, std::endian order = std::endian::big) { return put(value, 2, order); }
  Bytes& u24(std::uint64_t value) { return put(value, 3, std::endian::big); }
  Bytes& u32(std::uint64_t value, std::endian order = std::endian::big) { return put(value, 4, order); }
  Bytes& u64(std::uint64_t value, std::endian order = std::endian::big) { return put(value, 8, order); }

  Bytes& zeros(std::size_t count) {
    bytes_.insert(bytes_.end(), count, std::byte{0});
    return *this;
  }

  Bytes& add(const Bytes& more) {
    bytes_.insert(bytes_.end(), more.bytes_.begin(), more.bytes_.end());
    return *this;
  }

  [[nodiscard]] const std::vector<std::byte>& get() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }

 private:
  Bytes& put(std::uint64_t value, unsigned count, std::endian order) {
    for (unsigned index = 0; index < count; ++index) {
      const unsigned shift = 8 * (order == std::endian::big ? count - 1 - index : index);
      bytes_.push_back(static_cast<std::byte>(value >> shift & 0xffU));
    }
    return *this;
  }

  std::vector<std::byte> bytes_;
};

}  // namespace pulse::test
