// SPDX-License-Identifier: Apache-2.0
//
// The tap of one NIC: from sightings in true time to captured packets with real
// header bytes and the stamps of a clock that is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pulse/packet_batch.hpp"
#include "sim/packet_run.hpp"

namespace pulse::sim {

enum class TapMode : std::uint8_t { all, steered, sampled };
enum class SentStamp : std::uint8_t {
  wire,  // when the packet passed the tap
  copy,  // when its copy arrived in a receive queue: taken before the shaper, delayed, order kept
  none,  // sent packets are not seen at all
};

// How the packets of a whole run look, apart from addresses.
struct WireStyle {
  std::uint32_t mtu = 4096;
  std::int32_t vlan = -1;  // tag, or none
  bool ipv6 = false;
  bool migration_bit = true;
  std::uint8_t type_of_service = 0x02;
  std::uint16_t partition_key = 0xffff;
  std::uint8_t payload_byte = 0xab;
  bool checksums = true;  // the ICRC; who reads headers alone has no use for it
};

// One point of a clock: at true_ns it shows shown_ns; between points it runs straight, and beyond the last
// (or before the first) at the rate of the nearest piece. A step is two points of one true_ns.
struct ClockPoint {
  std::int64_t true_ns = 0;
  std::int64_t shown_ns = 0;
};

// A copy is taken at most this long before the packet leaves: what waits longer in front of a shaper waits before
// the place of the copy. So a tap knows when no earlier copy can come any more.
inline constexpr Picoseconds kMaxCopyLeadPs = 4'000'000'000;  // 4 ms

// Software stamps: packets that find this many waiting for their stamp are lost, as in the ring of a receive queue.
inline constexpr std::size_t kReceiveRingPackets = 4096;

struct TapConfig {
  TapMode mode = TapMode::all;
  std::uint32_t sample_shift = 0;  // sampled: one packet in 2^shift, drawn
  SentStamp sent_stamp = SentStamp::wire;
  double copy_delay_ns = 0;   // mean of the fixed part
  double copy_jitter_ns = 0;  // mean of the exponential part
  double stamp_noise_ns = 0;  // standard deviation, each packet; cut off at four of them
  // Software stamps: packets wait for the next poll and are stamped one after the other then. 0 = hardware stamps.
  double poll_interval_ns = 0;
  double loss_probability = 0;     // a loss begins at a packet
  double mean_loss_packets = 1;    // and takes this many on average (geometric)
  std::uint32_t snap_bytes = 128;  // 0 = whole packets with payload
  std::vector<ClockPoint> clock;   // at least one point
  std::uint64_t seed = 0;
};

// Turns what one NIC's tap saw into batches in the order of capture: by stamp, and by true time across a clock step.
// Stamps of one direction do not run backwards except at a step.
class Tap {
 public:
  // `nics` and `ends` outlive the tap. Throws std::invalid_argument, naming the field, for a bad configuration.
  Tap(const TapConfig& config, const WireStyle& style, std::span<const NicAddress> nics,
      std::span<const EndAddress> ends);
  Tap(Tap&&) noexcept;
  Tap& operator=(Tap&&) noexcept;
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;
  ~Tap();

  // Takes sightings in any order; none to come later has its first_ps before `complete_ps`. Appends the packets
  // whose place in the order of capture is settled. Same seed and sightings, same bytes, however they are cut.
  // Throws std::invalid_argument for a sighting of an end that is not among `ends`.
  void expand(std::span<const Sighting> sightings, Picoseconds complete_ps, PacketBatch& batch);

  // Appends the rest.
  void finish(PacketBatch& batch);

  // Packets that the capture lost so far.
  [[nodiscard]] std::uint64_t lost() const noexcept;

 private:
  class Pipeline;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace pulse::sim
