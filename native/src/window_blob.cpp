// SPDX-License-Identifier: Apache-2.0
#include "pulse/window_blob.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "pulse/varint.hpp"

namespace pulse {

void WindowBlobWriter::FlowBytes::put(std::uint64_t value) {
  std::array<std::uint8_t, kMaxVarintBytes> bytes;
  const std::size_t size = put_varint(bytes.data(), value);
  body_.insert(body_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
}

void WindowBlobWriter::FlowBytes::begin_flow(std::uint32_t flow) {
  put(flow - flow_before_);
  flow_before_ = flow;
  ++flows_;
}

// The count goes in front in place: a second copy of the whole would double what an interval takes.
std::vector<std::uint8_t> WindowBlobWriter::FlowBytes::take() {
  std::array<std::uint8_t, kMaxVarintBytes> count;
  const std::size_t size = put_varint(count.data(), flows_);
  body_.insert(body_.begin(), count.begin(), count.begin() + static_cast<std::ptrdiff_t>(size));
  return std::move(body_);
}

namespace {

std::uint64_t unit_of(std::span<const Window> windows) {
  std::uint64_t unit = 0;
  for (const Window& window : windows) {
    if (window.packets != 0) unit = std::max(unit, window.bytes / window.packets);
  }
  return unit;
}

}  // namespace

void WindowBlobWriter::put_run(std::span<const Window> run, std::uint64_t unit, std::int64_t& packets_before) {
  windows_.put(run.size());
  for (const Window& window : run) {
    windows_.put(zigzag(std::int64_t{window.packets} - packets_before));
    windows_.put(zigzag(static_cast<std::int64_t>(window.bytes - window.packets * unit)));
    packets_before = window.packets;
  }
}

void WindowBlobWriter::add(std::uint32_t flow, std::span<const Window> windows) {
  const auto is_exact = [](const Window& window) { return window.length == 1; };
  if (std::all_of(windows.begin(), windows.end(), is_exact)) return add_windows(flow, windows);
  exact_.clear();
  joined_.clear();
  for (const Window& window : windows) (is_exact(window) ? exact_ : joined_).push_back(window);
  add_windows(flow, exact_);
  add_pieces(flow, joined_);
}

void WindowBlobWriter::add_windows(std::uint32_t flow, std::span<const Window> windows) {
  if (windows.empty()) return;
  std::uint64_t runs = 1;
  for (std::size_t i = 1; i < windows.size(); ++i) {
    if (windows[i].index != windows[i - 1].index + 1) ++runs;
  }
  const std::uint64_t unit = unit_of(windows);
  windows_.begin_flow(flow);
  windows_.put(unit);
  windows_.put(runs);
  std::int64_t packets_before = 0;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= windows.size(); ++i) {
    if (i < windows.size() && windows[i].index == windows[i - 1].index + 1) continue;
    if (begin == 0) {
      windows_.put(zigzag(windows[0].index - base_));
    } else {
      windows_.put(static_cast<std::uint64_t>(windows[begin].index - windows[begin - 1].index - 1));
    }
    put_run(windows.subspan(begin, i - begin), unit, packets_before);
    begin = i;
  }
}

void WindowBlobWriter::add_pieces(std::uint32_t flow, std::span<const Window> pieces) {
  const std::uint64_t unit = unit_of(pieces);
  pieces_.begin_flow(flow);
  pieces_.put(unit);
  pieces_.put(pieces.size());
  std::int64_t end = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Window& piece = pieces[i];
    pieces_.put(i == 0 ? zigzag(piece.index - base_) : static_cast<std::uint64_t>(piece.index - end));
    pieces_.put(piece.length);
    pieces_.put(piece.packets);
    pieces_.put(zigzag(static_cast<std::int64_t>(piece.bytes - piece.packets * unit)));
    end = piece.index + piece.length;
    averaged_ += piece.length;
  }
}

std::vector<std::uint8_t> WindowBlobWriter::take_pieces() {
  return pieces_.flows() == 0 ? std::vector<std::uint8_t>{} : pieces_.take();
}

namespace {

constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();

// What both kinds of blob have in common.
class BlobReader {
 protected:
  BlobReader(std::span<const std::uint8_t> blob, const char* section, std::int64_t begin_ns, std::uint64_t window_ns,
             std::size_t max_windows)
      : in_(blob),
        section_(section),
        base_(WindowClock(window_ns).index(begin_ns)),
        window_ns_(window_ns),
        left_(max_windows),
        max_windows_(max_windows) {}

  template <typename ReadFlow>
  void read_flows(ReadFlow read_flow) {
    const std::uint64_t flows = number();
    std::uint64_t flow = 0;
    for (std::uint64_t i = 0; i < flows; ++i) {
      const std::uint64_t step = number();
      if (step > kMax32 - flow) fail("a flow number exceeds 32 bits");
      flow += step;
      read_flow(static_cast<std::uint32_t>(flow));
    }
    if (in_.remaining() != 0) fail("bytes follow the last flow");
  }

  [[noreturn]] void fail(const char* what) const {
    throw std::invalid_argument(std::string(section_) + " section is damaged: " + what);
  }

  std::uint64_t number() {
    const auto value = in_.next();
    if (!value) fail("a number is cut off or exceeds 64 bits");
    return *value;
  }

  // A step from the base with a sign, or from the place before without one.
  void advance(std::int64_t& index, bool first) {
    const std::uint64_t raw = number();
    const std::int64_t step = first ? unzigzag(raw) : static_cast<std::int64_t>(raw);
    if (!first && step < 0) fail("a window number exceeds 63 bits");
    if (__builtin_add_overflow(index, step, &index)) fail("a window number exceeds 63 bits");
  }

  void pass(std::int64_t& index, std::uint64_t windows) const {
    if (__builtin_add_overflow(index, static_cast<std::int64_t>(windows), &index)) {
      fail("a window number exceeds 63 bits");
    }
  }

  void count(std::uint64_t windows) {
    if (windows > left_) {
      throw std::length_error(std::string(section_) + " section holds more than the " + std::to_string(max_windows_) +
                              " windows allowed");
    }
    left_ -= windows;
  }

  [[nodiscard]] std::int64_t start_ns(std::int64_t index) const {
    std::int64_t ns = 0;
    if (__builtin_mul_overflow(index, static_cast<std::int64_t>(window_ns_), &ns)) {
      fail("a window starts beyond 64-bit time");
    }
    return ns;
  }

  [[nodiscard]] std::size_t remaining() const noexcept { return in_.remaining(); }
  [[nodiscard]] std::int64_t base() const noexcept { return base_; }

 private:
  VarintReader in_;
  const char* section_;
  std::int64_t base_;
  std::uint64_t window_ns_;
  std::uint64_t left_;
  std::size_t max_windows_;
};

class WindowReader : BlobReader {
 public:
  WindowReader(std::span<const std::uint8_t> blob, std::int64_t begin_ns, std::uint64_t window_ns, std::size_t max)
      : BlobReader(blob, "windows", begin_ns, window_ns, max) {}

  std::vector<WindowRecord> read() {
    read_flows([this](std::uint32_t flow) { read_flow(flow); });
    return std::move(out_);
  }

 private:
  void read_flow(std::uint32_t flow) {
    const std::uint64_t unit = number();
    const std::uint64_t runs = number();
    std::int64_t packets = 0;
    std::int64_t index = base();
    for (std::uint64_t run = 0; run < runs; ++run) {
      advance(index, run == 0);
      const std::uint64_t length = number();
      if (length > remaining() / 2) fail("a run is longer than the bytes left");
      count(length);
      for (std::uint64_t i = 0; i < length; ++i) read_window(flow, unit, index, packets);
    }
  }

  void read_window(std::uint32_t flow, std::uint64_t unit, std::int64_t& index, std::int64_t& packets) {
    const std::int64_t step = unzigzag(number());
    if (__builtin_add_overflow(packets, step, &packets) || packets < 0 || packets > std::int64_t{kMax32}) {
      fail("a packet count is not within 32 bits");
    }
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(packets) * unit + static_cast<std::uint64_t>(unzigzag(number()));
    out_.push_back({start_ns(index), flow, static_cast<std::uint32_t>(std::min(bytes, kMax32)),
                    static_cast<std::uint32_t>(packets), 0});
    pass(index, 1);
  }

  std::vector<WindowRecord> out_;
};

class PieceReader : BlobReader {
 public:
  PieceReader(std::span<const std::uint8_t> blob, std::int64_t begin_ns, std::uint64_t window_ns, std::size_t max)
      : BlobReader(blob, "pieces", begin_ns, window_ns, max) {}

  std::vector<PieceRecord> read() {
    read_flows([this](std::uint32_t flow) { read_flow(flow); });
    return std::move(out_);
  }

 private:
  void read_flow(std::uint32_t flow) {
    const std::uint64_t unit = number();
    const std::uint64_t pieces = number();
    if (pieces > remaining() / 4) fail("there are more pieces than the bytes left can hold");
    std::int64_t index = base();
    for (std::uint64_t i = 0; i < pieces; ++i) {
      advance(index, i == 0);
      const std::uint64_t windows = number();
      if (windows == 0 || windows > kMax32) fail("a piece holds no windows, or more than 32 bits tell");
      count(windows);
      const std::uint64_t packets = number();
      if (packets > kMax32) fail("a packet count is not within 32 bits");
      const std::uint64_t bytes = packets * unit + static_cast<std::uint64_t>(unzigzag(number()));
      out_.push_back(
          {start_ns(index), bytes, flow, static_cast<std::uint32_t>(packets), static_cast<std::uint32_t>(windows), 0});
      pass(index, windows);
    }
  }

  std::vector<PieceRecord> out_;
};

void check_width(std::uint64_t window_ns) {
  if (window_ns == 0 || window_ns > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw std::invalid_argument("window_ns is " + std::to_string(window_ns) + ", must be within 1 and 2^63 - 1");
  }
}

}  // namespace

std::vector<WindowRecord> decode_windows(std::span<const std::uint8_t> blob, std::int64_t begin_ns,
                                         std::uint64_t window_ns, std::size_t max_windows) {
  check_width(window_ns);
  return WindowReader(blob, begin_ns, window_ns, max_windows).read();
}

std::vector<PieceRecord> decode_pieces(std::span<const std::uint8_t> blob, std::int64_t begin_ns,
                                       std::uint64_t window_ns, std::size_t max_windows) {
  check_width(window_ns);
  return PieceReader(blob, begin_ns, window_ns, max_windows).read();
}

}  // namespace pulse
