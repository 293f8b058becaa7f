// SPDX-License-Identifier: Apache-2.0
//
// A push parser for capture files: give it the file in chunks of any size and
// it appends the complete packets of each chunk to a batch. Reads pcap
// (microseconds and nanoseconds) and pcapng, each in both byte orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pulse/packet_batch.hpp"

namespace pulse {

// Lengths that no sound capture reaches; a file that claims more is corrupt.
inline constexpr std::uint32_t kMaxCapturedBytes = 256U * 1024U;
inline constexpr std::uint32_t kMaxWireBytes = 16U * 1024U * 1024U;
inline constexpr std::uint32_t kMaxBlockBytes = 16U * 1024U * 1024U;

// What was read so far, and what could not be used.
struct CaptureStats {
  std::uint64_t packets = 0;          // handed out in batches
  std::uint64_t bytes = 0;            // of the file, fed so far
  std::uint64_t truncated_bytes = 0;  // of an incomplete item at the end, known after finish()
  std::uint64_t zero_length = 0;      // packets without a captured byte
  std::uint64_t bad_timestamps = 0;   // packets whose time is negative, overflows or has an impossible fraction
  std::uint64_t untimed = 0;          // pcapng simple packets, which carry no time
  std::uint64_t interface_drops = 0;  // told by pcapng interface statistics
  std::map<std::uint16_t, std::uint64_t> skipped_link_types;  // LINKTYPE_ value -> packets
  std::optional<std::int64_t> first_ns;                       // earliest packet handed out
  std::optional<std::int64_t> last_ns;                        // latest packet handed out
  std::optional<std::int64_t> statistics_ns;                  // latest interface statistics: the capture still ran then
  std::string corrupt;  // why and at which byte reading stopped; empty while all is well
};

class FormatDecoder;

class CaptureReader {
 public:
  // Keeps at most `keep_bytes` leading bytes of each packet.
  explicit CaptureReader(std::uint32_t keep_bytes = kMaxCapturedBytes);
  ~CaptureReader();
  CaptureReader(CaptureReader&&) noexcept;
  CaptureReader& operator=(CaptureReader&&) noexcept;

  // Appends the packets that `chunk` completes to `batch`. Does nothing but count
  // bytes once the file has turned out to be corrupt.
  void feed(std::span<const std::byte> chunk, PacketBatch& batch);

  // Tells that the file has ended. A packet cut by the end is counted, not an error.
  void finish();

  [[nodiscard]] const CaptureStats& stats() const noexcept { return *stats_; }

 private:
  [[nodiscard]] std::size_t decode(std::span<const std::byte> input, PacketBatch& batch);
  void choose_format(std::span<const std::byte> input);
  [[nodiscard]] std::size_t complete_carry(std::span<const std::byte> chunk, PacketBatch& batch);

  std::uint32_t keep_bytes_;
  std::unique_ptr<CaptureStats> stats_;  // at a fixed address: the decoder writes to it
  std::unique_ptr<FormatDecoder> decoder_;
  std::vector<std::byte> carry_;  // an item split between chunks, at most one block
  std::uint64_t offset_ = 0;      // in the file, of the next byte to decode
};

}  // namespace pulse
