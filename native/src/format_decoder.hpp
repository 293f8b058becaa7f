// SPDX-License-Identifier: Apache-2.0
//
// What the two file formats share: the decoder interface, the sink that checks
// and counts each packet, and the stop when a file turns out to be corrupt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "pulse/capture_reader.hpp"

namespace pulse {

// A packet as the file states it, before any of it is believed.
struct RawPacket {
  std::optional<std::int64_t> ns;  // nothing: the stated time cannot be right
  std::uint16_t link_type;
  std::uint32_t wire_bytes;
  std::span<const std::byte> captured;
};

class FormatDecoder {
 public:
  FormatDecoder(CaptureStats& stats, std::uint32_t keep_bytes) : stats_(stats), keep_bytes_(keep_bytes) {}
  virtual ~FormatDecoder() = default;
  FormatDecoder(const FormatDecoder&) = delete;
  FormatDecoder& operator=(const FormatDecoder&) = delete;

  // Decodes the complete items at the front of `input`, which begins at byte
  // `offset` of the file, and returns how many bytes these were. When the rest
  // is an incomplete item, wanted_bytes() is how much of it is needed to go on.
  [[nodiscard]] virtual std::size_t decode(std::span<const std::byte> input, std::uint64_t offset,
                                           PacketBatch& batch) = 0;

  // Size of the first incomplete item as far as it is known: its header, or all of it.
  [[nodiscard]] std::size_t wanted_bytes() const noexcept { return wanted_bytes_; }

 protected:
  void deliver(const RawPacket& packet, PacketBatch& batch);

  // Stops reading for good; `what` is wrong with the item at byte `offset`.
  void stop(std::uint64_t offset, std::string_view what);
  [[nodiscard]] bool stopped() const noexcept { return !stats_.corrupt.empty(); }

  void want(std::size_t bytes) noexcept { wanted_bytes_ = bytes; }
  [[nodiscard]] CaptureStats& stats() noexcept { return stats_; }

 private:
  CaptureStats& stats_;
  std::uint32_t keep_bytes_;
  std::size_t wanted_bytes_ = 0;
};

// Bytes from the start of a file that tell its format.
inline constexpr std::size_t kMagicBytes = 4;

[[nodiscard]] bool is_pcapng(std::span<const std::byte, kMagicBytes> magic) noexcept;
[[nodiscard]] bool is_pcap(std::span<const std::byte, kMagicBytes> magic) noexcept;

[[nodiscard]] std::unique_ptr<FormatDecoder> make_pcap_decoder(CaptureStats& stats, std::uint32_t keep_bytes);
[[nodiscard]] std::unique_ptr<FormatDecoder> make_pcapng_decoder(CaptureStats& stats, std::uint32_t keep_bytes);

}  // namespace pulse
