// SPDX-License-Identifier: Apache-2.0
//
// Packets of one interface while they pass: several rings that share the work in the
// kernel, joined to batches in the order of their stamps.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "live/packet_filter.hpp"
#include "live/packet_ring.hpp"
#include "pulse/packet_batch.hpp"

namespace pulse::live {

struct LiveConfig {
  std::string interface;
  Selection selection = Selection::all;
  std::uint32_t rings = 1;  // one thread reads them all: what costs is the kernel's part
  RingShape ring;
  bool promiscuous = true;
  bool outgoing = true;  // packets that this machine sends, too
};

// All of these only grow.
struct LiveCounts {
  std::uint64_t packets = 0;     // handed out
  std::uint64_t outgoing = 0;    // of these, sent by this machine
  std::uint64_t dropped = 0;     // found the ring full
  std::uint64_t freezes = 0;     // how often a ring became full
  std::uint64_t unstamped = 0;   // had no hardware stamp where the others have one, so they are not handed out
  std::uint64_t times_down = 0;  // how often the interface went down
};

class LiveCapture {
 public:
  // Captures from here on, or throws a CaptureError that names the interface, what failed and what to do.
  explicit LiveCapture(LiveConfig config);

  // Appends packets in the order of their stamps, at most `max_packets`; waits up to `timeout` while there is none.
  void read(std::chrono::milliseconds timeout, std::size_t max_packets, PacketBatch& batch);

  // False when the interface that was opened is gone: what comes back under its name is another one.
  [[nodiscard]] bool is_attached() const noexcept;

  [[nodiscard]] LiveCounts counts();
  [[nodiscard]] bool has_hardware_stamps() const noexcept { return hardware_stamps_; }

 private:
  void open_rings();
  [[nodiscard]] bool wait(std::chrono::milliseconds timeout);
  [[nodiscard]] std::int64_t find_horizon();
  void append(const tpacket3_hdr& packet, PacketBatch& batch);
  std::size_t merge(std::size_t max_packets, PacketBatch& batch);

  LiveConfig config_;
  int interface_index_ = 0;
  bool hardware_stamps_ = false;
  std::vector<PacketRing> rings_;
  std::int64_t newest_ns_;
  std::chrono::steady_clock::time_point last_news_;
  LiveCounts counts_;
};

}  // namespace pulse::live
