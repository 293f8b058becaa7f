// SPDX-License-Identifier: Apache-2.0
//
// Window sections as a frame from anywhere may hold them: refused, or rows within the bounds
// that a reader sets, none of which overlaps another.
#include <cstdint>
#include <exception>
#include <span>

#include "fuzz_input.hpp"
#include "pulse/window_blob.hpp"
#include "pulse/window_series.hpp"

namespace {

using pulse::fuzz::require;

constexpr std::size_t kMaxRows = 1U << 12;

void read_series(std::span<const std::uint8_t> section, std::uint64_t window_ns) {
  const auto rows = pulse::decode_series(section, window_ns, kMaxRows);
  require(rows.size() <= kMaxRows);
  __extension__ using Wide = __int128;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    require(rows[i].windows >= 1);
    if (i == 0 || rows[i - 1].flow != rows[i].flow) continue;
    const Wide end_ns = Wide{rows[i - 1].start_ns} + Wide{rows[i - 1].windows} * Wide{window_ns};
    require(end_ns <= rows[i].start_ns);
  }
}

void read_windows(std::span<const std::uint8_t> blob, std::int64_t begin_ns, std::uint64_t window_ns) {
  require(pulse::decode_windows(blob, begin_ns, window_ns, kMaxRows).size() <= kMaxRows);
}

template <typename Action>
void may_refuse(Action action) {
  try {
    action();
  } catch (const std::exception&) {
    return;  // refused, as it should be
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pulse::fuzz::Input input(data, size);
  const std::uint64_t window_ns = input.u8() % 8 == 7 ? input.number(8) : 8'000;
  const auto begin_ns = static_cast<std::int64_t>(input.number(input.u8() % 2 == 1 ? 8 : 2));
  may_refuse([&] { read_series(input.rest(), window_ns); });
  may_refuse([&] { read_windows(input.rest(), begin_ns, window_ns); });
  return 0;
}
