// SPDX-License-Identifier: Apache-2.0
//
// The pcapng format: sections of blocks, each block = type, total length, body,
// total length again. Interfaces and byte order belong to a section.
#include <algorithm>
#include <bit>
#include <vector>

#include "format_decoder.hpp"
#include "pulse/byte_order.hpp"
#include "time_scale.hpp"

namespace pulse {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0aU;  // the same in both byte orders
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kObsoletePacket = 2;
constexpr std::uint32_t kSimplePacket = 3;
constexpr std::uint32_t kInterfaceStatistics = 5;
constexpr std::uint32_t kEnhancedPacket = 6;

constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4dU;
constexpr std::size_t kBlockHeaderBytes = 8;
constexpr std::size_t kSectionStartBytes = 12;  // block header and byte-order magic
constexpr std::size_t kBlockOverheadBytes = 12;
constexpr std::size_t kMaxInterfaces = 65536;

constexpr std::uint16_t kOptionEnd = 0;
constexpr std::uint16_t kOptionTimeResolution = 9;
constexpr std::uint16_t kOptionTimeOffset = 14;
constexpr std::uint16_t kOptionEndTime = 3;
constexpr std::uint16_t kOptionInterfaceDrops = 5;
constexpr std::uint16_t kOptionSystemDrops = 7;

struct Interface {
  std::uint16_t link_type;
  TimeScale time;
  std::uint64_t drops = 0;  // latest statistics; the counter runs from the start of the capture
};

class PcapngDecoder final : public FormatDecoder {
 public:
  using FormatDecoder::FormatDecoder;

  std::size_t decode(std::span<const std::byte> input, std::uint64_t offset, PacketBatch& batch) override;

 private:
  using Body = std::span<const std::byte>;

  // Length of the block at the front of `input`; 0 when more bytes are wanted or the file is corrupt.
  std::size_t block_bytes(std::span<const std::byte> input);
  void read_block(std::uint32_t type, Body body, PacketBatch& batch);
  void read_section(Body body);
  void read_interface(Body body);
  void read_enhanced_packet(Body body, PacketBatch& batch);
  void read_obsolete_packet(Body body, PacketBatch& batch);
  void read_statistics(Body body);
  void read_packet(std::uint32_t interface_index, Body rest, PacketBatch& batch);

  // Calls `visit(code, value)` for each option that lies wholly inside `options`.
  template <typename Visit>
  void for_each_option(Body options, Visit&& visit) const;

  void fail(std::string_view what) { stop(block_offset_, what); }
  [[nodiscard]] Interface* interface_at(std::uint32_t index);
  [[nodiscard]] bool has(Body body, std::size_t bytes);
  [[nodiscard]] std::uint16_t load16(const std::byte* from) const noexcept { return load<std::uint16_t>(from, order_); }
  [[nodiscard]] std::uint32_t load32(const std::byte* from) const noexcept { return load<std::uint32_t>(from, order_); }
  [[nodiscard]] std::uint64_t load64(const std::byte* from) const noexcept { return load<std::uint64_t>(from, order_); }
  // A time is stored as two 32-bit halves, the upper one first in either byte order.
  [[nodiscard]] std::uint64_t load_ticks(const std::byte* from) const noexcept {
    return static_cast<std::uint64_t>(load32(from)) << 32U | load32(from + 4);
  }

  std::endian order_ = std::endian::little;
  std::uint64_t block_offset_ = 0;
  std::vector<Interface> interfaces_;
};

std::size_t PcapngDecoder::decode(std::span<const std::byte> input, std::uint64_t offset, PacketBatch& batch) {
  std::size_t at = 0;
  while (!stopped()) {
    block_offset_ = offset + at;
    const auto rest = input.subspan(at);
    const std::size_t bytes = block_bytes(rest);
    if (bytes == 0) {
      break;
    }
    if (load32(rest.data() + bytes - 4) != bytes) {
      fail("the two lengths of a block differ");
      break;
    }
    read_block(load32(rest.data()), rest.subspan(kBlockHeaderBytes, bytes - kBlockOverheadBytes), batch);
    at += bytes;
  }
  return at;
}

std::size_t PcapngDecoder::block_bytes(std::span<const std::byte> input) {
  want(kSectionStartBytes);  // no block is shorter
  if (input.size() < kSectionStartBytes) {
    return 0;
  }
  if (load32(input.data()) == kSectionHeader) {
    const auto magic = load_little<std::uint32_t>(input.data() + kBlockHeaderBytes);
    if (magic != kByteOrderMagic && byte_swap(magic) != kByteOrderMagic) {
      fail("a section header without byte-order magic");
      return 0;
    }
    order_ = magic == kByteOrderMagic ? std::endian::little : std::endian::big;
  }
  const std::uint32_t bytes = load32(input.data() + 4);
  if (bytes < kBlockOverheadBytes || bytes % 4 != 0 || bytes > kMaxBlockBytes) {
    fail("a block of " + std::to_string(bytes) + " bytes");
    return 0;
  }
  want(bytes);
  return input.size() < bytes ? 0 : bytes;
}

void PcapngDecoder::read_block(std::uint32_t type, Body body, PacketBatch& batch) {
  switch (type) {
    case kEnhancedPacket:
      return read_enhanced_packet(body, batch);
    case kSectionHeader:
      return read_section(body);
    case kInterfaceDescription:
      return read_interface(body);
    case kInterfaceStatistics:
      return read_statistics(body);
    case kObsoletePacket:
      return read_obsolete_packet(body, batch);
    case kSimplePacket:
      ++stats().untimed;
      return;
    default:
      return;  // names, decryption secrets, vendor blocks: nothing for us
  }
}

void PcapngDecoder::read_section(Body body) {
  if (!has(body, 16)) {
    return;
  }
  const std::uint16_t major = load16(body.data() + 4);
  if (major != 1) {
    fail("pcapng version " + std::to_string(major) + "; only version 1 is known");
    return;
  }
  interfaces_.clear();
}

void PcapngDecoder::read_interface(Body body) {
  if (!has(body, 8)) {
    return;
  }
  if (interfaces_.size() == kMaxInterfaces) {
    fail("more than " + std::to_string(kMaxInterfaces) + " interfaces in one section");
    return;
  }
  constexpr std::uint8_t kMicroseconds = 6;
  std::uint8_t resolution = kMicroseconds;
  std::int64_t offset_s = 0;
  for_each_option(body.subspan(8), [&](std::uint16_t code, Body value) {
    if (code == kOptionTimeResolution && !value.empty()) {
      resolution = std::to_integer<std::uint8_t>(value[0]);
    } else if (code == kOptionTimeOffset && value.size() >= 8) {
      offset_s = static_cast<std::int64_t>(load64(value.data()));
    }
  });
  interfaces_.push_back({load16(body.data()), TimeScale(resolution, offset_s)});
}

void PcapngDecoder::read_enhanced_packet(Body body, PacketBatch& batch) {
  if (has(body, 20)) {
    read_packet(load32(body.data()), body.subspan(4), batch);
  }
}

void PcapngDecoder::read_obsolete_packet(Body body, PacketBatch& batch) {
  if (has(body, 20)) {
    read_packet(load16(body.data()), body.subspan(4), batch);  // then 16 bits of drop count
  }
}

// `rest` is the part that both packet blocks share: time, captured and wire length, packet.
void PcapngDecoder::read_packet(std::uint32_t interface_index, Body rest, PacketBatch& batch) {
  const Interface* interface = interface_at(interface_index);
  if (interface == nullptr) {
    return;
  }
  constexpr std::size_t kFixedBytes = 16;
  const std::uint32_t captured_bytes = load32(rest.data() + 8);
  const std::uint32_t wire_bytes = load32(rest.data() + 12);
  if (captured_bytes > kMaxCapturedBytes || wire_bytes > kMaxWireBytes || captured_bytes > rest.size() - kFixedBytes) {
    fail("a packet of " + std::to_string(captured_bytes) + " captured and " + std::to_string(wire_bytes) +
         " wire bytes in a block of " + std::to_string(rest.size()));
    return;
  }
  deliver({interface->time.to_ns(load_ticks(rest.data())), interface->link_type, wire_bytes,
           rest.subspan(kFixedBytes, captured_bytes)},
          batch);
}

void PcapngDecoder::read_statistics(Body body) {
  if (!has(body, 12)) {
    return;
  }
  Interface* interface = interface_at(load32(body.data()));
  if (interface == nullptr) {
    return;
  }
  auto witness_ns = interface->time.to_ns(load_ticks(body.data() + 4));
  std::uint64_t drops = 0;
  for_each_option(body.subspan(12), [&](std::uint16_t code, Body value) {
    if (value.size() < 8) {
      return;
    }
    if (code == kOptionInterfaceDrops || code == kOptionSystemDrops) {
      drops += load64(value.data());
    } else if (code == kOptionEndTime) {
      witness_ns = std::max(witness_ns, interface->time.to_ns(load_ticks(value.data())));
    }
  });
  stats().statistics_ns = std::max(stats().statistics_ns, witness_ns);
  if (drops > interface->drops) {
    stats().interface_drops += drops - interface->drops;
    interface->drops = drops;
  }
}

template <typename Visit>
void PcapngDecoder::for_each_option(Body options, Visit&& visit) const {
  while (options.size() >= 4) {
    const std::uint16_t code = load16(options.data());
    const std::size_t bytes = load16(options.data() + 2);
    const std::size_t padded_bytes = (bytes + 3) / 4 * 4;
    if (code == kOptionEnd || padded_bytes > options.size() - 4) {
      return;
    }
    visit(code, options.subspan(4, bytes));
    options = options.subspan(4 + padded_bytes);
  }
}

Interface* PcapngDecoder::interface_at(std::uint32_t index) {
  if (index >= interfaces_.size()) {
    fail("interface " + std::to_string(index) + " is not described");
    return nullptr;
  }
  return &interfaces_[index];
}

// Stops when the fixed part of a block does not fit into it.
bool PcapngDecoder::has(Body body, std::size_t bytes) {
  if (body.size() < bytes) {
    fail("a block of " + std::to_string(body.size() + kBlockOverheadBytes) + " bytes is too short for its type");
  }
  return body.size() >= bytes;
}

}  // namespace

bool is_pcapng(std::span<const std::byte, kMagicBytes> magic) noexcept {
  return load_little<std::uint32_t>(magic.data()) == kSectionHeader;
}

std::unique_ptr<FormatDecoder> make_pcapng_decoder(CaptureStats& stats, std::uint32_t keep_bytes) {
  return std::make_unique<PcapngDecoder>(stats, keep_bytes);
}

}  // namespace pulse
