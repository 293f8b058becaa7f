// SPDX-License-Identifier: Apache-2.0
//
// Field layouts: the InfiniBand architecture's RoCEv2 annex.
#include "sim/headers.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "pulse/opcode.hpp"

namespace pulse::sim {
namespace {

constexpr std::uint32_t kRocePort = 4791;
constexpr std::uint32_t kTtl = 64;
constexpr std::uint32_t kUdpProtocol = 17;
constexpr std::uint32_t kVlanPriority = 3;
constexpr std::uint32_t kCnpTypeOfService = 0xc0;
constexpr std::uint32_t kCongestionMark = 0x03;
constexpr std::uint32_t kDontFragment = 0x4000;
constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kVlanBytes = 4;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kBthBytes = 12;
constexpr std::uint32_t kIcrcBytes = 4;
constexpr std::uint32_t kRethBytes = 16;
constexpr std::uint32_t kCnpReservedBytes = 16;
constexpr std::uint32_t kMinMtu = 256;
constexpr std::uint32_t kMaxMtu = 16384;
constexpr std::uint32_t kMaxVlan = 4095;

void put8(std::byte* at, std::uint32_t value) noexcept { at[0] = static_cast<std::byte>(value); }

void put16(std::byte* at, std::uint32_t value) noexcept {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}

void put32(std::byte* at, std::uint32_t value) noexcept {
  put16(at, value >> 16);
  put16(at + 2, value);
}

void put64(std::byte* at, std::uint64_t value) noexcept {
  put32(at, static_cast<std::uint32_t>(value >> 32));
  put32(at + 4, static_cast<std::uint32_t>(value));
}

template <std::size_t N>
void put_bytes(std::byte* at, const std::uint8_t (&bytes)[N]) noexcept {
  std::memcpy(at, bytes, N);
}

struct Form {
  std::uint8_t opcode;
  std::uint8_t extension_bytes;
};

// By verb, then first, middle, last, only.
constexpr auto kForms = [] {
  using namespace operation;
  constexpr Form kFetch{kFetchAdd, 28};
  constexpr Form kAck{kAcknowledge, 4};
  constexpr Form kAtomic{kAtomicAcknowledge, 12};
  constexpr Form kNotification{kCnp, kCnpReservedBytes};
  return std::array<std::array<Form, 4>, 7>{{
      {{{kWriteFirst, 16}, {kWriteMiddle, 0}, {kWriteLast, 0}, {kWriteOnly, 16}}},
      {{{kWriteFirst, 16}, {kWriteMiddle, 0}, {kWriteLastImmediate, 4}, {kWriteOnlyImmediate, 20}}},
      {{{kSendFirst, 0}, {kSendMiddle, 0}, {kSendLast, 0}, {kSendOnly, 0}}},
      {{kFetch, kFetch, kFetch, kFetch}},
      {{kAck, kAck, kAck, kAck}},
      {{kAtomic, kAtomic, kAtomic, kAtomic}},
      {{kNotification, kNotification, kNotification, kNotification}},
  }};
}();

bool carries_payload(Verb verb) noexcept {
  return verb == Verb::write || verb == Verb::write_imm || verb == Verb::send;
}

bool is_response(Verb verb) noexcept { return verb == Verb::acknowledge || verb == Verb::atomic_ack; }

void write_transport(std::byte* bth, const PacketRun& run, std::uint32_t packet, const PacketShape& shape,
                     const EndAddress& end, bool migration_bit) noexcept {
  put8(bth, shape.opcode);
  put8(bth + 1, std::uint32_t{shape.pad_bytes} << 4 | (migration_bit ? 0x40U : 0U));
  const auto count = static_cast<std::uint32_t>(run.index) + packet;
  std::uint32_t psn = (is_response(run.verb) ? end.peer_start_psn : end.start_psn) + count;
  if (run.verb == Verb::cnp) {
    put8(bth + 4, 0x40);  // BECN
    psn = 0;
  }
  const bool ask = run.ack_request && packet + 1 == run.count;
  put32(bth + 8, (psn & 0xffffffU) | (ask ? 0x80000000U : 0U));
}

void write_extensions(std::byte* at, const PacketRun& run, const PacketShape& shape) noexcept {
  switch (run.verb) {
    case Verb::write:
    case Verb::write_imm:
      if (shape.extension_bytes >= kRethBytes) {
        put64(at, run.address);
        put32(at + 8, run.remote_key);
        put32(at + 12, run.message_bytes);
        at += kRethBytes;
      }
      if (shape.extension_bytes % kRethBytes != 0) {
        put32(at, run.immediate);
      }
      return;
    case Verb::send:
      return;
    case Verb::fetch_add:
      put64(at, run.address);
      put32(at + 8, run.remote_key);
      put64(at + 12, 1);  // what is added
      put64(at + 20, 0);  // compare, unused
      return;
    case Verb::acknowledge:
    case Verb::atomic_ack:
      put32(at, std::uint32_t{run.syndrome} << 24 | (run.msn & 0xffffffU));
      if (run.verb == Verb::atomic_ack) {
        put64(at + 4, run.index);  // the value before: any that grows
      }
      return;
    case Verb::cnp:
      std::memset(at, 0, kCnpReservedBytes);
      return;
  }
}

void check_style(const WireStyle& style, std::uint32_t snap_bytes) {
  if (style.mtu < kMinMtu || style.mtu > kMaxMtu) {
    throw std::invalid_argument("mtu: " + std::to_string(style.mtu) + " is not between " + std::to_string(kMinMtu) +
                                " and " + std::to_string(kMaxMtu));
  }
  if (style.vlan < -1 || style.vlan > static_cast<std::int32_t>(kMaxVlan)) {
    throw std::invalid_argument("vlan: " + std::to_string(style.vlan) + " is neither -1 nor a tag up to 4095");
  }
  if (snap_bytes != 0 && snap_bytes < kEthernetBytes) {
    throw std::invalid_argument("snap_bytes: " + std::to_string(snap_bytes) +
                                " is shorter than an Ethernet header; 0 keeps whole packets");
  }
}

void check_ends(std::span<const EndAddress> ends, std::size_t nics) {
  for (std::size_t index = 0; index < ends.size(); ++index) {
    if (ends[index].nic >= nics || ends[index].peer_nic >= nics) {
      throw std::invalid_argument("ends: end " + std::to_string(index) + " names a NIC beyond the " +
                                  std::to_string(nics) + " given");
    }
  }
}

}  // namespace

ZeroPages::ZeroPages(std::size_t count)
    : places_(static_cast<std::uint32_t*>(std::calloc(std::max<std::size_t>(count, 1), sizeof(std::uint32_t)))) {
  if (places_ == nullptr) throw std::bad_alloc();
}

FrameWriter::FrameWriter(const WireStyle& style, std::span<const NicAddress> nics, std::span<const EndAddress> ends,
                         std::uint32_t snap_bytes)
    : style_(style),
      nics_(nics),
      ends_(ends),
      snap_bytes_(snap_bytes),
      ip_offset_(kEthernetBytes + (style.vlan < 0 ? 0 : kVlanBytes)),
      ip_bytes_(style.ipv6 ? 40 : 20),
      bth_offset_(ip_offset_ + ip_bytes_ + kUdpBytes),
      crc_(style.payload_byte, std::min(style.mtu, kMaxMtu)),
      template_places_(ends.size()) {
  check_style(style, snap_bytes);
  check_ends(ends, nics.size());
}

PacketShape FrameWriter::shape(const PacketRun& run, std::uint32_t packet) const noexcept {
  PacketShape shape;
  const std::uint32_t place = run.offset + packet;
  const bool is_last = place + 1 >= run.message_packets;
  const std::size_t column = is_last ? (place == 0 ? 3 : 2) : (place == 0 ? 0 : 1);
  const Form& form = kForms[static_cast<std::size_t>(run.verb)][column];
  shape.opcode = form.opcode;
  shape.extension_bytes = form.extension_bytes;
  if (carries_payload(run.verb)) {
    const std::uint64_t before = std::uint64_t{place} * style_.mtu;
    const std::uint64_t rest = run.message_bytes > before ? run.message_bytes - before : 0;
    shape.payload_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(rest, style_.mtu));
    shape.pad_bytes = static_cast<std::uint8_t>((0U - shape.payload_bytes) & 3U);
  }
  shape.wire_bytes = static_cast<std::uint32_t>(bth_offset_ + kBthBytes) + shape.extension_bytes + shape.payload_bytes +
                     shape.pad_bytes + kIcrcBytes;
  return shape;
}

void FrameWriter::append(const PacketRun& run, std::uint32_t packet, bool received, std::int64_t ns,
                         PacketBatch& batch) {
  const PacketShape frame = shape(run, packet);
  const std::uint32_t captured_bytes = snap_bytes_ == 0 ? frame.wire_bytes : std::min(frame.wire_bytes, snap_bytes_);
  const std::span<std::byte> captured = batch.append_blank(ns, frame.wire_bytes, LinkType::ethernet, captured_bytes);
  // Headers are written as a whole, so that no field asks whether it is still inside what is kept.
  std::array<std::byte, kTemplateBytes> scratch;
  std::byte* headers = captured.size() < kTemplateBytes ? scratch.data() : captured.data();
  write_headers(headers, run, packet, received, frame);
  if (captured.size() < kTemplateBytes) {
    std::memcpy(captured.data(), headers, captured.size());
  } else if (captured.size() > kTemplateBytes) {
    std::memset(captured.data() + kTemplateBytes, style_.payload_byte, captured.size() - kTemplateBytes);
  }
  if (style_.checksums && captured_bytes + kIcrcBytes + frame.pad_bytes > frame.wire_bytes) {
    write_tail(captured, headers, frame);
  }
}

const FrameWriter::Template& FrameWriter::template_of(std::uint32_t end) {
  std::uint32_t& place = template_places_[end];
  if (place == 0) {
    templates_.push_back(make_template(ends_[end]));
    place = static_cast<std::uint32_t>(templates_.size());
  }
  return templates_[place - 1];
}

FrameWriter::Template FrameWriter::make_template(const EndAddress& end) const {
  Template made;
  made.bytes.fill(static_cast<std::byte>(style_.payload_byte));
  const NicAddress& source = nics_[end.nic];
  const NicAddress& target = nics_[end.peer_nic];
  std::byte* at = made.bytes.data();
  put_bytes(at, target.mac);
  put_bytes(at + 6, source.mac);
  if (style_.vlan >= 0) {
    put16(at + 12, 0x8100);
    put16(at + 14, kVlanPriority << 13 | static_cast<std::uint32_t>(style_.vlan));
  }
  put16(at + ip_offset_ - 2, style_.ipv6 ? 0x86dd : 0x0800);
  std::byte* ip = at + ip_offset_;
  if (style_.ipv6) {
    put32(ip, 0x60000000U);
    put32(ip + 4, kUdpProtocol << 8 | kTtl);
    put_bytes(ip + 8, source.ipv6);
    put_bytes(ip + 24, target.ipv6);
  } else {
    put32(ip, 0x45000000U);
    put32(ip + 4, kDontFragment);
    put32(ip + 8, (kTtl << 8 | kUdpProtocol) << 16);
    put32(ip + 12, source.ipv4);
    put32(ip + 16, target.ipv4);
    made.ip_sum = 0x4500 + kDontFragment + (kTtl << 8 | kUdpProtocol) + (source.ipv4 >> 16) + (source.ipv4 & 0xffffU) +
                  (target.ipv4 >> 16) + (target.ipv4 & 0xffffU);
  }
  std::byte* udp = ip + ip_bytes_;
  put32(udp, std::uint32_t{end.udp_source_port} << 16 | kRocePort);
  put32(udp + 4, 0);
  put32(udp + kUdpBytes, style_.partition_key);
  put32(udp + kUdpBytes + 4, end.dest_qpn & 0xffffffU);
  return made;
}

void FrameWriter::write_headers(std::byte* at, const PacketRun& run, std::uint32_t packet, bool received,
                                const PacketShape& shape) {
  const Template& base = template_of(run.end);
  std::memcpy(at, base.bytes.data(), kTemplateBytes);
  write_network(at, base, run, packet, received, shape);
  write_transport(at + bth_offset_, run, packet, shape, ends_[run.end], style_.migration_bit);
  write_extensions(at + bth_offset_ + kBthBytes, run, shape);
}

void FrameWriter::write_network(std::byte* frame, const Template& base, const PacketRun& run, std::uint32_t packet,
                                bool received, const PacketShape& shape) const {
  std::byte* ip = frame + ip_offset_;
  std::uint32_t type_of_service = run.verb == Verb::cnp ? kCnpTypeOfService : style_.type_of_service;
  if (received && run.congestion_mark) {
    type_of_service |= kCongestionMark;
  }
  const auto total_bytes = shape.wire_bytes - static_cast<std::uint32_t>(ip_offset_);
  const auto udp_bytes = total_bytes - static_cast<std::uint32_t>(ip_bytes_);
  put16(ip + ip_bytes_ + 4, udp_bytes);
  if (style_.ipv6) {
    put16(ip, 0x6000U | type_of_service << 4);
    put16(ip + 4, udp_bytes);
    return;
  }
  const std::uint32_t id = (run.ip_id + packet) & 0xffffU;
  put8(ip + 1, type_of_service);
  put16(ip + 2, total_bytes);
  put16(ip + 4, id);
  std::uint32_t sum = base.ip_sum + type_of_service + total_bytes + id;
  sum = (sum & 0xffffU) + (sum >> 16);
  sum = (sum & 0xffffU) + (sum >> 16);
  put16(ip + 10, ~sum);
}

void FrameWriter::write_tail(std::span<std::byte> captured, const std::byte* headers, const PacketShape& shape) {
  const std::size_t header_bytes = bth_offset_ + kBthBytes + shape.extension_bytes - ip_offset_;
  const std::uint32_t crc = crc_.icrc({headers + ip_offset_, header_bytes}, ip_bytes_, shape.payload_bytes);
  std::array<std::byte, 3 + kIcrcBytes> tail{};  // pad, then the CRC in little-endian order
  for (std::uint32_t index = 0; index < kIcrcBytes; ++index) {
    tail[shape.pad_bytes + index] = static_cast<std::byte>(crc >> 8 * index);
  }
  const std::size_t begin = shape.wire_bytes - kIcrcBytes - shape.pad_bytes;
  std::memcpy(captured.data() + begin, tail.data(), captured.size() - begin);
}

}  // namespace pulse::sim
