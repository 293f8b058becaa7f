// SPDX-License-Identifier: Apache-2.0
//
// What the targets share: an invariant that must hold, and numbers out of the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <span>

namespace pulse::fuzz {

inline void require(bool condition, const std::source_location place = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%u: a rule does not hold\n", place.file_name(), static_cast<unsigned>(place.line()));
  std::abort();
}

// Numbers from the input, from its front on; zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) noexcept : bytes_(data, size) {}

  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }

  [[nodiscard]] std::uint8_t u8() noexcept {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }

  // Little-endian.
  [[nodiscard]] std::uint64_t number(unsigned width) noexcept {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < width; ++i) value |= std::uint64_t{u8()} << (8 * i);
    return value;
  }

  [[nodiscard]] std::span<const std::uint8_t> rest() const noexcept { return bytes_; }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace pulse::fuzz
