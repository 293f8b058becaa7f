// SPDX-License-Identifier: Apache-2.0
#include "pulse/message_tracker.hpp"

#include <algorithm>

#include "pulse/elapsed.hpp"
#include "pulse/saturating.hpp"

namespace pulse {

namespace {

// Adds a packet's time, and its content unless that had been seen before.
void touch(OpenMessage& message, const MessagePacket& packet) {
  const std::int64_t gap_ns = elapsed_ns(message.last_ns, packet.ns);
  if (gap_ns > message.longest_gap_ns) message.longest_gap_ns = saturated_ns(gap_ns);
  message.last_ns = std::max(message.last_ns, packet.ns);
  message.start_ns = std::min(message.start_ns, packet.ns);
  add_saturating(message.packets, 1);
  if (packet.sight == Sight::repeat) {
    message.flags |= kMessageRepeated;
    return;
  }
  message.payload_bytes += packet.payload_bytes;
  message.first = std::min(message.first, packet.position);
  message.last = std::max(message.last, packet.position);
  const bool ends = packet.traits.place == MessagePlace::last || packet.traits.place == MessagePlace::only;
  if (ends && packet.position == message.last) {
    message.flags = static_cast<std::uint8_t>(message.flags & ~kMessageNoEnd);
  }
  if (packet.traits.immediate) {
    message.flags |= kMessageImmediate;
    message.immediate = packet.immediate;
  }
}

// The packet turned out to be the message's first.
void set_start(OpenMessage& message, const MessagePacket& packet) {
  message.flags = static_cast<std::uint8_t>(message.flags & ~kMessageNoStart);
  message.opcode = packet.opcode;
  if (packet.traits.reth) {
    message.flags |= kMessageLengthKnown;
    message.message_bytes = packet.message_bytes;
  }
}

OpenMessage begin(const MessagePacket& packet) {
  OpenMessage message;
  message.start_ns = message.last_ns = packet.ns;
  message.first = message.last = packet.position;
  message.opcode = packet.opcode;
  message.life = packet.life;
  message.flags = kMessageNoStart | kMessageNoEnd;
  if (starts_message(packet.traits.place)) set_start(message, packet);
  touch(message, packet);
  return message;
}

}  // namespace

void MessageTracker::on_packet(OpenMessage& open, const MessagePacket& packet, const PsnHoles& holes,
                               std::vector<OpenMessage>& done) {
  // Not at the next MIDDLE: whether it comes here depends on whether a run takes it. One out of the past always
  // comes, and must not wake what had been given up at an end of an interval before.
  const bool may_be_in_a_run = packet.traits.place == MessagePlace::middle && packet.sight == Sight::next;
  if (!repairs_.empty() && !may_be_in_a_run) expire(packet.ns, done);
  if (packet.sight == Sight::repeat) return on_repeat(open, packet);
  if (packet.sight == Sight::late) return on_late(open, packet, holes, done);
  if (starts_message(packet.traits.place)) interrupt(open, packet.sight, done);
  if (open.packets == 0) {
    open = begin(packet);
  } else {
    touch(open, packet);
  }
  if (!open.has_end()) return;
  if (settled(open, holes)) {
    done.push_back(open);
  } else {
    repair(open, done);
  }
  open = OpenMessage{};
}

void MessageTracker::interrupt(OpenMessage& open, Sight sight, std::vector<OpenMessage>& done) {
  if (open.packets == 0) return;
  if (can_repair_ && sight == Sight::ahead) {
    repair(open, done);  // its end is among the missing packets
  } else {
    done.push_back(open);
  }
  open = OpenMessage{};
}

void MessageTracker::on_repeat(OpenMessage& open, const MessagePacket& packet) {
  if (open.holds(packet.position)) return touch(open, packet);
  const auto message =
      std::find_if(repairs_.begin(), repairs_.end(), [&](const OpenMessage& m) { return m.holds(packet.position); });
  if (message != repairs_.end()) touch(*message, packet);
}

void MessageTracker::on_late(OpenMessage& open, const MessagePacket& packet, const PsnHoles& holes,
                             std::vector<OpenMessage>& done) {
  if (packet.traits.place == MessagePlace::only) {
    done.push_back(begin(packet));
    return;
  }
  OpenMessage* message = owner_of_late(open, packet);
  if (message != nullptr) {
    if (packet.traits.place == MessagePlace::first && !message->has_start()) set_start(*message, packet);
    touch(*message, packet);
  } else {
    repair(begin(packet), done);
  }
  // Only now may something else in repair have become whole.
  std::erase_if(repairs_, [&](const OpenMessage& m) {
    if (!settled(m, holes)) return false;
    done.push_back(m);
    return true;
  });
}

// The message that a packet out of the past belongs to, as far as places and order tell.
OpenMessage* MessageTracker::owner_of_late(OpenMessage& open, const MessagePacket& packet) {
  OpenMessage* before = nullptr;  // nearest message below that lacks its end
  OpenMessage* after = nullptr;   // nearest message above that lacks its start
  const auto consider = [&](OpenMessage& message) {
    if (message.packets == 0) return;
    if (message.last < packet.position && !message.has_end() && (before == nullptr || before->last < message.last)) {
      before = &message;
    }
    if (message.first > packet.position && !message.has_start() && (after == nullptr || after->first > message.first)) {
      after = &message;
    }
  };
  if (open.holds(packet.position)) return &open;
  for (OpenMessage& message : repairs_) {
    if (message.holds(packet.position)) return &message;
    consider(message);
  }
  consider(open);
  if (packet.traits.place == MessagePlace::first) return after;
  if (packet.traits.place == MessagePlace::last) return before;
  return before != nullptr ? before : after;
}

void MessageTracker::repair(const OpenMessage& message, std::vector<OpenMessage>& done) {
  if (!can_repair_) {
    done.push_back(message);
    return;
  }
  if (repairs_.size() == kMaxRepairs) {
    done.push_back(repairs_.front());
    repairs_.erase(repairs_.begin());
  }
  repairs_.push_back(message);
}

// Whether no packet is missing inside, nor next to an end that has not been seen.
bool MessageTracker::settled(const OpenMessage& message, const PsnHoles& holes) const noexcept {
  if (!can_repair_) return true;
  return !holes.overlap(message.first - (message.has_start() ? 0 : 1), message.last + (message.has_end() ? 1 : 2));
}

void MessageTracker::expire(std::int64_t now_ns, std::vector<OpenMessage>& done) {
  std::erase_if(repairs_, [&](const OpenMessage& message) {
    if (elapsed_ns(message.last_ns, now_ns) <= kRepairNs) return false;
    done.push_back(message);
    return true;
  });
}

void MessageTracker::flush(OpenMessage& open, std::vector<OpenMessage>& done) {
  done.insert(done.end(), repairs_.begin(), repairs_.end());
  repairs_.clear();
  if (open.packets != 0) done.push_back(open);
  open = OpenMessage{};
}

}  // namespace pulse
