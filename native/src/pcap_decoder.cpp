// SPDX-License-Identifier: Apache-2.0
//
// The classic libpcap format: a 24-byte file header, then records of a 16-byte
// header and the packet. All integers are in the byte order of the writer.
#include <algorithm>
#include <bit>

#include "format_decoder.hpp"
#include "pulse/byte_order.hpp"

namespace pulse {
namespace {

constexpr std::uint32_t kMagicMicroseconds = 0xa1b2c3d4U;
constexpr std::uint32_t kMagicNanoseconds = 0xa1b23c4dU;
constexpr std::uint32_t kMagicModified = 0xa1b2cd34U;  // Kuznetzov's patch: longer record headers

constexpr std::size_t kFileHeaderBytes = 24;
constexpr std::size_t kRecordHeaderBytes = 16;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

class PcapDecoder final : public FormatDecoder {
 public:
  using FormatDecoder::FormatDecoder;

  std::size_t decode(std::span<const std::byte> input, std::uint64_t offset, PacketBatch& batch) override;

 private:
  void read_file_header(const std::byte* header);
  void read_record(const std::byte* header, std::span<const std::byte> captured, PacketBatch& batch);

  [[nodiscard]] std::uint32_t load32(const std::byte* from) const noexcept { return load<std::uint32_t>(from, order_); }

  bool header_read_ = false;
  std::endian order_ = std::endian::little;
  std::uint32_t fractions_per_second_ = 0;
  std::uint16_t link_type_ = 0;
};

void PcapDecoder::read_file_header(const std::byte* header) {
  const auto magic = load_little<std::uint32_t>(header);
  order_ = magic >> 24 == 0xa1U ? std::endian::little : std::endian::big;
  const std::uint32_t native_magic = load32(header);
  const auto major = load<std::uint16_t>(header + 4, order_);
  if (native_magic == kMagicModified) {
    stop(0, "modified pcap format of old patched tcpdump versions; convert it with `editcap -F pcap`");
    return;
  }
  if (major != 2) {
    stop(0, "pcap version " + std::to_string(major) + "; only version 2 exists");
    return;
  }
  fractions_per_second_ = native_magic == kMagicNanoseconds ? 1'000'000'000U : 1'000'000U;
  // The upper half holds the length of the frame check sequence, which does not matter here.
  link_type_ = static_cast<std::uint16_t>(load32(header + 20) & 0xffffU);
  header_read_ = true;
}

void PcapDecoder::read_record(const std::byte* header, std::span<const std::byte> captured, PacketBatch& batch) {
  const std::int64_t seconds = load32(header);
  const std::uint32_t fraction = load32(header + 4);
  RawPacket packet{std::nullopt, link_type_, load32(header + 12), captured};
  if (fraction < fractions_per_second_) {
    packet.ns = seconds * kNsPerSecond + static_cast<std::int64_t>(fraction) * (kNsPerSecond / fractions_per_second_);
  }
  deliver(packet, batch);
}

std::size_t PcapDecoder::decode(std::span<const std::byte> input, std::uint64_t offset, PacketBatch& batch) {
  std::size_t at = 0;
  if (!header_read_) {
    want(kFileHeaderBytes);
    if (input.size() < kFileHeaderBytes) {
      return 0;
    }
    read_file_header(input.data());
    at = kFileHeaderBytes;
  }
  while (!stopped()) {
    want(kRecordHeaderBytes);
    if (input.size() - at < kRecordHeaderBytes) {
      break;
    }
    const std::byte* header = input.data() + at;
    const std::uint32_t captured_bytes = load32(header + 8);
    if (captured_bytes > kMaxCapturedBytes || load32(header + 12) > kMaxWireBytes) {
      stop(offset + at, "a packet of " + std::to_string(captured_bytes) + " captured and " +
                            std::to_string(load32(header + 12)) + " wire bytes");
      break;
    }
    want(kRecordHeaderBytes + captured_bytes);
    if (input.size() - at < wanted_bytes()) {
      break;
    }
    read_record(header, input.subspan(at + kRecordHeaderBytes, captured_bytes), batch);
    at += wanted_bytes();
  }
  return at;
}

}  // namespace

bool is_pcap(std::span<const std::byte, kMagicBytes> magic) noexcept {
  const auto little = load_little<std::uint32_t>(magic.data());
  const auto is_one_of_them = [](std::uint32_t value) {
    return value == kMagicMicroseconds || value == kMagicNanoseconds || value == kMagicModified;
  };
  return is_one_of_them(little) || is_one_of_them(byte_swap(little));
}

std::unique_ptr<FormatDecoder> make_pcap_decoder(CaptureStats& stats, std::uint32_t keep_bytes) {
  return std::make_unique<PcapDecoder>(stats, keep_bytes);
}

}  // namespace pulse
