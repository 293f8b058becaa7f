// SPDX-License-Identifier: Apache-2.0
//
// Packet sequence numbers of one direction. PSNs are 24 bits and wrap; here they
// are extended to 64-bit positions, so that order, distance and memory of missing
// packets never depend on where the wrap happens to be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pulse {

inline constexpr std::uint32_t kPsnMask = 0xffffffU;

// Extended PSN: the low 24 bits are the PSN on the wire.
using PsnPosition = std::int64_t;
inline constexpr PsnPosition kNoPosition = -1;

[[nodiscard]] constexpr std::uint32_t psn_of(PsnPosition position) noexcept {
  return static_cast<std::uint32_t>(position) & kPsnMask;
}

// a - b in serial arithmetic: -2^23 .. 2^23 - 1.
[[nodiscard]] constexpr std::int32_t psn_distance(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

enum class Sight : std::uint8_t {
  next,     // the expected PSN, or a jump that is normal for this view
  ahead,    // PSNs in front of it are missing
  late,     // fills a hole that an earlier jump left
  repeat,   // was seen before
  restart,  // first packet of a new life of the queue pair
};

struct PsnSighting {
  PsnPosition position;
  Sight sight;
  std::uint32_t missing;  // of `ahead`
};

// What the classification needs to know of a packet besides its PSN.
struct PsnContext {
  std::int64_t idle_ns;   // since the flow's packet before
  bool starts_message;    // FIRST or ONLY
  bool jumps_are_normal;  // the view leaves packets out on purpose
};

// A step back to the start of a life must exceed this to be a new life: a sender
// that goes back N packets stays within what it may have in flight.
inline constexpr std::int32_t kGoBackWindow = 4096;
// A step this far is a new life after kRestartIdleNs of silence, in either direction...
inline constexpr std::int32_t kFarJump = 1 << 16;
inline constexpr std::int64_t kRestartIdleNs = 1'000'000'000;
// ...and this far back at once.
inline constexpr std::int32_t kImplausibleGoBack = 1 << 20;
// After this silence a step to the start of the life is a new life, however short:
// no retry timer in use is longer.
inline constexpr std::int64_t kDeadIdleNs = 60'000'000'000;

// Missing ranges of a flow, oldest first. Bounded: the oldest is forgotten first.
class PsnHoles {
 public:
  void add(PsnPosition begin, PsnPosition end);
  // Removes one position; false when it was not missing.
  bool fill(PsnPosition position);
  [[nodiscard]] bool overlap(PsnPosition begin, PsnPosition end) const noexcept;
  void clear() noexcept { ranges_.clear(); }
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return ranges_.capacity() * sizeof(Range); }

 private:
  struct Range {
    PsnPosition begin;
    PsnPosition end;
  };
  static constexpr std::size_t kMaxRanges = 32;
  std::vector<Range> ranges_;  // stays empty, without memory, on a flow that loses nothing
};

// Everything about a PSN space except the expected position, which the caller
// keeps with its hottest data: on the usual path only that is read and written.
class PsnHistory {
 public:
  // Classifies a PSN that is not the expected one, and moves `next`.
  PsnSighting classify(PsnPosition& next, std::uint32_t psn, const PsnContext& context);

  // A READ request at `position` takes the PSNs of its response's packets. The path
  // MTU is unknown, so any jump that one of 256 bytes allows is accepted behind it.
  void note_read(PsnPosition position, std::uint32_t bytes) noexcept {
    read_next_ = position + 1;
    read_limit_ = position + std::max<PsnPosition>(1, (PsnPosition{bytes} + 255) / 256);
  }

  [[nodiscard]] const PsnHoles& holes() const noexcept { return holes_; }
  [[nodiscard]] PsnPosition first() const noexcept { return first_; }
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return holes_.heap_bytes(); }

 private:
  void begin_life(PsnPosition& next, std::uint32_t psn);
  [[nodiscard]] bool is_restart(std::int32_t distance, std::uint32_t psn, const PsnContext& context) const noexcept;
  PsnSighting classify_behind(PsnPosition position);

  PsnPosition first_ = kNoPosition;
  PsnPosition read_next_ = kNoPosition;
  PsnPosition read_limit_ = kNoPosition;
  PsnHoles holes_;
};

// Usual path: the expected PSN.
inline PsnSighting classify_psn(PsnPosition& next, PsnHistory& history, std::uint32_t psn, const PsnContext& context) {
  if (next != kNoPosition && psn == psn_of(next)) return {next++, Sight::next, 0};
  return history.classify(next, psn, context);
}

}  // namespace pulse
