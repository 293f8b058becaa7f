// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same with every standard library: xoshiro256**
// (Blackman and Vigna, public domain) seeded by SplitMix64, and the few
// distributions that the simulator draws from.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace pulse::sim {

// One step of SplitMix64: a bijection of 64 bits that leaves no visible relation between neighbours.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

// The seed of an independent stream, for example of one purpose `a` and one NIC `b`.
[[nodiscard]] constexpr std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) noexcept {
  return mix64(mix64(mix64(seed) ^ a) ^ b);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {
      word = mix64(seed);
      seed += 0x9e3779b97f4a7c15U;
    }
  }

  [[nodiscard]] static constexpr Random stream(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) noexcept {
    return Random(derive_seed(seed, a, b));
  }

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // In [0, 1), a multiple of 2^-53.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

  // In [0, count); 0 when count is 0. Lemire's multiplication; numbers that would favour some results are drawn again.
  constexpr std::uint32_t below(std::uint32_t count) noexcept {
    const std::uint32_t unfair = count == 0 ? 0 : (0U - count) % count;
    std::uint64_t product = 0;
    do {
      product = (next() >> 32) * count;
    } while (static_cast<std::uint32_t>(product) < unfair);
    return static_cast<std::uint32_t>(product >> 32);
  }

  constexpr bool chance(double probability) noexcept { return uniform() < probability; }

  double exponential(double mean) noexcept { return -mean * std::log1p(-uniform()); }

  // Mean 0, standard deviation 1: Marsaglia's polar method, both numbers of a pair used.
  double normal() noexcept {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    double x = 0;
    double y = 0;
    double square = 0;
    do {
      x = 2 * uniform() - 1;
      y = 2 * uniform() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double scale = std::sqrt(-2 * std::log(square) / square);
    spare_ = y * scale;
    has_spare_ = true;
    return x * scale;
  }

 private:
  std::array<std::uint64_t, 4> state_{};
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace pulse::sim
