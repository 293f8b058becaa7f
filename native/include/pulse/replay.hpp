// SPDX-License-Identifier: Apache-2.0
//
// Replays the messages of a job with some of their delays shortened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace pulse {

inline constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kNoRow = -1;

// What one message waited for, and how long its own steps took. Rows index the other messages, kNoRow
// where nothing is known. Lags (ns) count from what was waited for; a message whose waits are all unknown
// follows what its sender did before, a credit likewise its receiver.
struct ReplayMessage {
  std::int64_t start;          // observed, ns
  std::int64_t input_row;      // its last needed arrival
  std::int64_t before_row;     // the message before it in its lane
  std::int64_t grant_row;      // what its credit waited for
  std::int64_t compute_row;    // before which its host computed last, when that is what it waits for
  std::int64_t posted;         // when its credit was granted, kNoTime without credits
  std::int64_t input_lag;      // least time from the needed arrival to the start
  std::int64_t before_lag;     // least time from the end of the message before to the start
  std::int64_t compute_lag;    // least time from that message's start to the start
  std::int64_t credit_way;     // from the grant to the sender's knowledge of it
  std::int64_t sending;        // from its first packet to its last at the sender
  std::int64_t transfer;       // from its first packet to its arrival
  std::int64_t grant_is_send;  // 1: grant_row's sending, not its arrival, made the credit possible
  std::int32_t sender;         // whose host sends it, numbered from 0
  std::int32_t receiver;       // whose host grants it, numbered likewise
};

// By how much each step of a message is shortened (ns, >= 0).
struct ReplayCut {
  std::int64_t host;
  std::int64_t credit;
  std::int64_t transfer;
};

// Writes the arrival of every message as it would have been with the cuts.
//
// `order` lists all rows by observed start; what a message waited for stands before it, or keeps its
// observed time. Without cuts the arrivals are the observed ones. Returns false, and writes nothing of
// use, when a row or a host (of `hosts`) is out of range.
bool replay(std::span<const ReplayMessage> messages, std::span<const ReplayCut> cuts,
            std::span<const std::int64_t> order, std::size_t hosts, std::span<std::int64_t> arrivals);

}  // namespace pulse
