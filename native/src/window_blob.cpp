// SPDX-License-Identifier: Apache-2.0
#include "pulse/window_blob.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "pulse/varint.hpp"
#include "pulse/window_clock.hpp"

namespace pulse {

namespace {

class WindowBlobReader {
 public:
  WindowBlobReader(std::span<const std::uint8_t> blob, std::int64_t begin_ns, std::uint64_t window_ns,
                   std::size_t max_windows)
      : in_(blob), base_(WindowClock(window_ns).index(begin_ns)), window_ns_(window_ns), max_windows_(max_windows) {}

  std::vector<WindowRecord> read() {
    const std::uint64_t flows = number();
    std::uint64_t flow = 0;
    for (std::uint64_t i = 0; i < flows; ++i) {
      const std::uint64_t step = number();
      if (i > 0 && step == 0) fail("a flow stands twice in it");
      if (step > std::numeric_limits<std::uint32_t>::max() - flow) fail("a flow number exceeds 32 bits");
      flow += step;
      read_flow(static_cast<std::uint32_t>(flow));
    }
    if (in_.remaining() != 0) fail("bytes follow the last flow");
    return std::move(out_);
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw std::invalid_argument(std::string("windows section is damaged: ") + what);
  }

  std::uint64_t number() {
    const auto value = in_.next();
    if (!value) fail("a number is cut off or exceeds 64 bits");
    return *value;
  }

  void read_flow(std::uint32_t flow) {
    const std::uint64_t unit = number();
    const std::uint64_t runs = number();
    std::int64_t packets = 0;
    std::int64_t index = base_;
    for (std::uint64_t run = 0; run < runs; ++run) {
      const std::uint64_t raw = number();
      const std::int64_t step = run == 0 ? unzigzag(raw) : static_cast<std::int64_t>(raw);
      if (run > 0 && step < 0) fail("a window number exceeds 63 bits");
      if (__builtin_add_overflow(index, step, &index)) fail("a window number exceeds 63 bits");
      const std::uint64_t length = number();
      if (length > in_.remaining() / 2) fail("a run is longer than the bytes left");
      if (length > max_windows_ - out_.size()) {
        throw std::length_error("windows section holds more than the " + std::to_string(max_windows_) +
                                " windows allowed");
      }
      for (std::uint64_t i = 0; i < length; ++i) read_window(flow, unit, index, packets);
    }
  }

  void read_window(std::uint32_t flow, std::uint64_t unit, std::int64_t& index, std::int64_t& packets) {
    constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
    const std::int64_t step = unzigzag(number());
    if (__builtin_add_overflow(packets, step, &packets) || packets < 0 || packets > std::int64_t{kMax32}) {
      fail("a packet count is not within 32 bits");
    }
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(packets) * unit + static_cast<std::uint64_t>(unzigzag(number()));
    std::int64_t start_ns = 0;
    if (__builtin_mul_overflow(index, static_cast<std::int64_t>(window_ns_), &start_ns)) {
      fail("a window starts beyond 64-bit time");
    }
    out_.push_back(
        {start_ns, flow, static_cast<std::uint32_t>(std::min(bytes, kMax32)), static_cast<std::uint32_t>(packets), 0});
    if (__builtin_add_overflow(index, 1, &index)) fail("a window number exceeds 63 bits");
  }

  VarintReader in_;
  std::int64_t base_;
  std::uint64_t window_ns_;
  std::size_t max_windows_;
  std::vector<WindowRecord> out_;
};

}  // namespace

std::vector<WindowRecord> decode_windows(std::span<const std::uint8_t> blob, std::int64_t begin_ns,
                                         std::uint64_t window_ns, std::size_t max_windows) {
  if (window_ns == 0 || window_ns > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw std::invalid_argument("window_ns is " + std::to_string(window_ns) + ", must be within 1 and 2^63 - 1");
  }
  return WindowBlobReader(blob, begin_ns, window_ns, max_windows).read();
}

}  // namespace pulse
