// SPDX-License-Identifier: Apache-2.0
#include "pulse/capture_reader.hpp"

#include <algorithm>
#include <utility>

#include "format_decoder.hpp"

namespace pulse {
namespace {

// Reserving saves the copies of growing columns; the guess only has to be near.
constexpr std::size_t kTypicalRecordBytes = 128;
constexpr std::size_t kMaxReservedBytes = std::size_t{8} << 20U;

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<std::size_t>(byte);
    if (!text.empty()) {
      text += ' ';
    }
    text += kDigits[value >> 4];
    text += kDigits[value & 15U];
  }
  return text;
}

std::string not_a_capture(std::span<const std::byte> start) {
  return "not a capture file: it begins with " + hex(start) + "; expected pcap or pcapng";
}

bool is_supported(std::uint16_t link_type) noexcept {
  switch (static_cast<LinkType>(link_type)) {
    case LinkType::ethernet:
    case LinkType::linux_sll:
    case LinkType::linux_sll2:
      return true;
  }
  return false;
}

}  // namespace

void FormatDecoder::deliver(const RawPacket& packet, PacketBatch& batch) {
  if (!is_supported(packet.link_type)) {
    ++stats_.skipped_link_types[packet.link_type];
    return;
  }
  if (packet.captured.empty()) {
    ++stats_.zero_length;
    return;
  }
  if (!packet.ns) {
    ++stats_.bad_timestamps;
    return;
  }
  const std::int64_t ns = *packet.ns;
  ++stats_.packets;
  stats_.first_ns = std::min(ns, stats_.first_ns.value_or(ns));
  stats_.last_ns = std::max(ns, stats_.last_ns.value_or(ns));
  const auto captured_bytes = static_cast<std::uint32_t>(packet.captured.size());
  // Some tools write 0 or the snap length here; a packet is never shorter than what was kept of it.
  const std::uint32_t wire_bytes = std::max(packet.wire_bytes, captured_bytes);
  batch.append(ns, wire_bytes, static_cast<LinkType>(packet.link_type),
               packet.captured.first(std::min(captured_bytes, keep_bytes_)));
}

void FormatDecoder::stop(std::uint64_t offset, std::string_view what) {
  stats_.corrupt = "corrupt at byte " + std::to_string(offset) + ": " + std::string(what);
}

CaptureReader::CaptureReader(std::uint32_t keep_bytes)
    : keep_bytes_(keep_bytes), stats_(std::make_unique<CaptureStats>()) {}

CaptureReader::~CaptureReader() = default;
CaptureReader::CaptureReader(CaptureReader&&) noexcept = default;
CaptureReader& CaptureReader::operator=(CaptureReader&&) noexcept = default;

void CaptureReader::feed(std::span<const std::byte> chunk, PacketBatch& batch) {
  stats_->bytes += chunk.size();
  if (batch.empty()) {
    batch.reserve(chunk.size() / kTypicalRecordBytes, std::min<std::size_t>(chunk.size(), kMaxReservedBytes));
  }
  const std::size_t used = carry_.empty() ? 0 : complete_carry(chunk, batch);
  const auto rest = chunk.subspan(used);
  const std::size_t decoded = decode(rest, batch);
  if (stats_->corrupt.empty()) {
    const auto left = rest.subspan(decoded);
    carry_.insert(carry_.end(), left.begin(), left.end());
  } else {
    carry_ = {};
  }
}

// Fills the carried item up from `chunk` and decodes it; returns the bytes taken.
std::size_t CaptureReader::complete_carry(std::span<const std::byte> chunk, PacketBatch& batch) {
  std::size_t taken = 0;
  while (!carry_.empty() && stats_->corrupt.empty()) {
    const std::size_t wanted = std::max(decoder_ ? decoder_->wanted_bytes() : kMagicBytes, carry_.size());
    const std::size_t added = std::min(wanted - carry_.size(), chunk.size() - taken);
    const auto part = chunk.subspan(taken, added);
    carry_.insert(carry_.end(), part.begin(), part.end());
    taken += added;
    if (carry_.size() < wanted) {
      break;  // the chunk ends first
    }
    const std::size_t decoded = decode(carry_, batch);
    carry_.erase(carry_.begin(), carry_.begin() + static_cast<std::ptrdiff_t>(decoded));
  }
  return taken;
}

std::size_t CaptureReader::decode(std::span<const std::byte> input, PacketBatch& batch) {
  if (!decoder_ && input.size() >= kMagicBytes) {
    choose_format(input);
  }
  if (!decoder_ || !stats_->corrupt.empty()) {
    return 0;
  }
  const std::size_t decoded = decoder_->decode(input, offset_, batch);
  offset_ += decoded;
  return decoded;
}

void CaptureReader::choose_format(std::span<const std::byte> input) {
  const auto magic = input.first<kMagicBytes>();
  if (is_pcapng(magic)) {
    decoder_ = make_pcapng_decoder(*stats_, keep_bytes_);
  } else if (is_pcap(magic)) {
    decoder_ = make_pcap_decoder(*stats_, keep_bytes_);
  } else if (stats_->corrupt.empty()) {
    stats_->corrupt = not_a_capture(input.first(std::min<std::size_t>(input.size(), 8)));
  }
}

void CaptureReader::finish() {
  if (stats_->bytes == 0) {
    stats_->corrupt = "the file is empty";
  } else if (!decoder_ && stats_->corrupt.empty()) {
    stats_->corrupt = not_a_capture(carry_);
  } else {
    stats_->truncated_bytes = carry_.size();
  }
}

}  // namespace pulse
