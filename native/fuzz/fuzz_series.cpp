// SPDX-License-Identifier: Apache-2.0
//
// Series sections as a frame from anywhere may hold them; and windows that the bytes
// describe, through a store of a tiny budget and back: their sums must be what went in.
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <span>
#include <vector>

#include "pulse/varint.hpp"
#include "pulse/window_series.hpp"
#include "pulse/window_store.hpp"

namespace {

void read(std::span<const std::uint8_t> bytes) {
  try {
    static_cast<void>(pulse::decode_series(bytes, 8'000, 1U << 16));
  } catch (const std::exception&) {
    return;  // refused, as it should be
  }
}

void round_trip(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kSlots = 4;
  pulse::WindowStore store(kSlots, 4 * 64);
  pulse::VarintReader in(bytes);
  std::uint64_t sent_bytes = 0;
  std::uint64_t sent_packets = 0;
  while (true) {
    const auto where = in.next();
    const auto amount = in.next();
    const auto count = in.next();
    if (!where || !amount || !count) break;
    const auto packets = static_cast<std::uint32_t>(*count % 1000 + 1);
    store.append(*where % kSlots, pulse::unzigzag(*where >> 2) / 4, *amount & 0xffffffU, packets);
    sent_bytes += *amount & 0xffffffU;
    sent_packets += packets;
  }
  std::vector<pulse::Window> windows;
  for (std::size_t slot = 0; slot < kSlots; ++slot) store.take(slot, windows);
  for (const pulse::Window& window : windows) {
    sent_bytes -= window.bytes;
    sent_packets -= window.packets;
  }
  if (store.lost() == 0 && (sent_bytes != 0 || sent_packets != 0)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read({data, size});
  round_trip({data, size});
  return 0;
}
