// SPDX-License-Identifier: Apache-2.0
//
// Windows of an interval as bytes. Varints, zigzag where a number may be negative:
//
//   flow count, then per flow, ascending:
//     flow - flow before (the first: flow)
//     unit: bytes per packet that most windows have
//     run count, then per run of windows without a hole between them:
//       zigzag(index - base) for the first run, empty windows skipped for later ones
//       length, then per window:
//         zigzag(packets - packets of the window before; the flow's first: packets)
//         zigzag(bytes - packets * unit)
//
// base = floor(begin_ns / window_ns); a window starts at index * window_ns.
//
// Pieces, several windows known by their sums only, are bytes of their own:
//
//   flow count, then per flow, ascending:
//     flow - flow before (the first: flow)
//     unit
//     piece count, then per piece:
//       zigzag(index - base) for the first, windows skipped for later ones
//       windows in it
//       packets
//       zigzag(bytes - packets * unit)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pulse/records.hpp"
#include "pulse/window_store.hpp"

namespace pulse {

class WindowBlobWriter {
 public:
  explicit WindowBlobWriter(std::int64_t base) noexcept : base_(base) {}

  // `windows` ascending, none overlapping another; flows ascending from call to call.
  void add(std::uint32_t flow, std::span<const Window> windows);

  [[nodiscard]] std::vector<std::uint8_t> take_windows() { return windows_.take(); }
  // Empty when there was no piece.
  [[nodiscard]] std::vector<std::uint8_t> take_pieces();
  // Windows that pieces cover.
  [[nodiscard]] std::uint64_t averaged() const noexcept { return averaged_; }

 private:
  // Bytes behind a count of flows, which is known last.
  class FlowBytes {
   public:
    void begin_flow(std::uint32_t flow);
    void put(std::uint64_t value);
    [[nodiscard]] std::uint64_t flows() const noexcept { return flows_; }
    [[nodiscard]] std::vector<std::uint8_t> take();

   private:
    std::uint64_t flows_ = 0;
    std::uint32_t flow_before_ = 0;
    std::vector<std::uint8_t> body_;
  };

  void add_windows(std::uint32_t flow, std::span<const Window> windows);
  void add_pieces(std::uint32_t flow, std::span<const Window> pieces);
  void put_run(std::span<const Window> run, std::uint64_t unit, std::int64_t& packets_before);

  std::int64_t base_;
  std::uint64_t averaged_ = 0;
  FlowBytes windows_;
  FlowBytes pieces_;
  std::vector<Window> exact_;  // scratch of add()
  std::vector<Window> joined_;
};

// Reads a blob that may be damaged or hostile: at most `max_windows` rows, each
// of which takes two bytes of the blob. Bytes beyond 32 bits saturate. Throws
// std::invalid_argument when the blob is not one, std::length_error when it is too long.
[[nodiscard]] std::vector<WindowRecord> decode_windows(std::span<const std::uint8_t> blob, std::int64_t begin_ns,
                                                       std::uint64_t window_ns, std::size_t max_windows);

// The same for pieces: at most `max_windows` windows in all of them.
[[nodiscard]] std::vector<PieceRecord> decode_pieces(std::span<const std::uint8_t> blob, std::int64_t begin_ns,
                                                     std::uint64_t window_ns, std::size_t max_windows);

}  // namespace pulse
