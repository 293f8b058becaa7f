// SPDX-License-Identifier: Apache-2.0
//
// The bytes of simulated packets: Ethernet, VLAN tag, IPv4 or IPv6, UDP, BTH,
// extension headers, payload and ICRC.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "pulse/packet_batch.hpp"
#include "sim/packet_crc.hpp"
#include "sim/packet_run.hpp"
#include "sim/tap.hpp"

namespace pulse::sim {

// The sizes of one packet, and what its place in the message makes of it.
struct PacketShape {
  std::uint32_t wire_bytes = 0;  // the frame without FCS
  std::uint32_t payload_bytes = 0;
  std::uint32_t extension_bytes = 0;  // extension headers; of a CNP its reserved bytes
  std::uint8_t pad_bytes = 0;
  std::uint8_t opcode = 0;
};

// Zeros, of which the system provides a page when one of its places is first asked for.
class ZeroPages {
 public:
  explicit ZeroPages(std::size_t count);
  [[nodiscard]] std::uint32_t& operator[](std::size_t place) noexcept { return places_[place]; }

 private:
  struct Free {
    void operator()(std::uint32_t* places) const noexcept { std::free(places); }
  };
  std::unique_ptr<std::uint32_t[], Free> places_;
};

class FrameWriter {
 public:
  // `nics` and `ends` outlive the writer. Throws std::invalid_argument, naming the field, for what no frame can show.
  FrameWriter(const WireStyle& style, std::span<const NicAddress> nics, std::span<const EndAddress> ends,
              std::uint32_t snap_bytes);

  // Of packet `packet` of the run, from 0.
  [[nodiscard]] PacketShape shape(const PacketRun& run, std::uint32_t packet) const noexcept;

  // Appends packet `packet` of the run, stamped `ns`. A congestion mark shows only where the packet was `received`.
  void append(const PacketRun& run, std::uint32_t packet, bool received, std::int64_t ns, PacketBatch& batch);

 private:
  static constexpr std::size_t kTemplateBytes = 128;  // holds the longest headers, 106 bytes

  // All that the packets of one end have in common, payload behind the BTH.
  struct Template {
    std::array<std::byte, kTemplateBytes> bytes{};
    std::uint32_t ip_sum = 0;  // of the IPv4 header's words that are the same in all packets
  };

  [[nodiscard]] const Template& template_of(std::uint32_t end);
  [[nodiscard]] Template make_template(const EndAddress& end) const;
  void write_headers(std::byte* at, const PacketRun& run, std::uint32_t packet, bool received,
                     const PacketShape& shape);
  void write_network(std::byte* frame, const Template& base, const PacketRun& run, std::uint32_t packet, bool received,
                     const PacketShape& shape) const;
  void write_tail(std::span<std::byte> captured, const std::byte* headers, const PacketShape& shape);

  WireStyle style_;
  std::span<const NicAddress> nics_;
  std::span<const EndAddress> ends_;
  std::uint32_t snap_bytes_;
  std::size_t ip_offset_;
  std::size_t ip_bytes_;
  std::size_t bth_offset_;
  PacketCrc crc_;
  // Made when an end first shows: a tap sees few of all ends, and takes memory for the places of those alone.
  std::vector<Template> templates_;
  ZeroPages template_places_;  // by end, from 1; 0 = not made yet
};

}  // namespace pulse::sim
