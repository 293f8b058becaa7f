// SPDX-License-Identifier: Apache-2.0
//
// Puts the packets of one PSN space together to messages.
//
// On the usual path one message is open and grows at its end. A message that
// ends with packets missing inside waits in repair until these have come, so a
// loss makes one longer record, not several. Repeats of what has been recorded
// never make a record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pulse/opcode_traits.hpp"
#include "pulse/psn.hpp"
#include "pulse/records.hpp"

namespace pulse {

// A message that has not been recorded yet. Fields that every packet changes come first.
struct OpenMessage {
  std::int64_t last_ns = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t packets = 0;  // 0: no message
  std::uint32_t longest_gap_ns = 0;
  PsnPosition last = kNoPosition;  // highest position seen
  std::int64_t start_ns = 0;
  PsnPosition first = kNoPosition;  // lowest position seen
  std::uint32_t message_bytes = 0;  // from RETH
  std::uint32_t immediate = 0;
  std::uint8_t opcode = 0;
  std::uint8_t flags = 0;  // MessageFlag; NO_START and NO_END say what is still missing
  std::uint16_t life = 0;  // of the flow when it began: a response outlives a restart of the requests beside it

  [[nodiscard]] bool holds(PsnPosition position) const noexcept {
    return packets != 0 && first <= position && position <= last;
  }
  [[nodiscard]] bool has_start() const noexcept { return (flags & kMessageNoStart) == 0; }
  [[nodiscard]] bool has_end() const noexcept { return (flags & kMessageNoEnd) == 0; }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return (flags & kMessageLengthKnown) != 0 ? message_bytes : payload_bytes;
  }
};

struct MessagePacket {
  std::int64_t ns;
  PsnPosition position;
  Sight sight;
  OpcodeTraits traits;
  std::uint8_t opcode;
  std::uint32_t payload_bytes;
  std::uint32_t message_bytes;  // RETH.DMALen
  std::uint32_t immediate;
  std::uint16_t life;
};

// Messages waiting for missing packets, and the rules around them. The one open
// message is kept by the caller with its hottest data. Finished messages are
// appended to `done`.
class MessageTracker {
 public:
  // After this silence of a message in repair nobody waits for it any more.
  static constexpr std::int64_t kRepairNs = 10'000'000'000;

  // `can_repair` is false where lost packets are never sent again, or never seen.
  explicit MessageTracker(bool can_repair = true) noexcept : can_repair_(can_repair) {}

  void on_packet(OpenMessage& open, const MessagePacket& packet, const PsnHoles& holes, std::vector<OpenMessage>& done);

  // A request that is no message (READ, atomic) ends an open one.
  void interrupt(OpenMessage& open, Sight sight, std::vector<OpenMessage>& done);

  // Gives up what has been silent in repair for longer than kRepairNs.
  void expire(std::int64_t now_ns, std::vector<OpenMessage>& done);

  // Gives up everything.
  void flush(OpenMessage& open, std::vector<OpenMessage>& done);

  [[nodiscard]] std::size_t heap_bytes() const noexcept { return repairs_.capacity() * sizeof(OpenMessage); }

 private:
  static constexpr std::size_t kMaxRepairs = 4;

  void on_repeat(OpenMessage& open, const MessagePacket& packet);
  void on_late(OpenMessage& open, const MessagePacket& packet, const PsnHoles& holes, std::vector<OpenMessage>& done);
  OpenMessage* owner_of_late(OpenMessage& open, const MessagePacket& packet);
  void repair(const OpenMessage& message, std::vector<OpenMessage>& done);
  [[nodiscard]] bool settled(const OpenMessage& message, const PsnHoles& holes) const noexcept;

  bool can_repair_;
  std::vector<OpenMessage> repairs_;  // empty, without memory, on a flow that loses nothing
};

}  // namespace pulse
