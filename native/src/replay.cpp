// SPDX-License-Identifier: Apache-2.0
#include "pulse/replay.hpp"

#include <algorithm>
#include <vector>

namespace pulse {
namespace {

// How much earlier than observed each message starts, leaves and arrives (ns).
struct Gain {
  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t arrival = 0;
};

bool valid(const ReplayMessage& message, std::size_t rows, std::size_t hosts) {
  const auto limit = static_cast<std::int64_t>(rows);
  const auto in_range = [limit](std::int64_t row) { return row >= kNoRow && row < limit; };
  const auto is_host = [hosts](std::int32_t host) { return host >= 0 && static_cast<std::size_t>(host) < hosts; };
  return in_range(message.input_row) && in_range(message.before_row) && in_range(message.grant_row) &&
         in_range(message.compute_row) && is_host(message.sender) && is_host(message.receiver);
}

class Replay {
 public:
  Replay(std::span<const ReplayMessage> messages, std::span<const ReplayCut> cuts, std::size_t hosts)
      : messages_(messages), cuts_(cuts), gains_(messages.size()), carried_(hosts, 0) {}

  std::int64_t arrival_of(std::size_t row) {
    const ReplayMessage& message = messages_[row];
    Gain& gain = gains_[row];
    const std::int64_t saved = std::min(cuts_[row].transfer, message.transfer);
    gain.start = start_gain(row);
    gain.end = gain.start + std::min(saved, message.sending);
    gain.arrival = gain.start + saved;
    carried_[static_cast<std::size_t>(message.sender)] = gain.start;
    return message.start + message.transfer - gain.arrival;
  }

 private:
  // The latest of what the message waits for, observed and replayed; what is left of its delay is its
  // host's, and that the cut shortens.
  std::int64_t start_gain(std::size_t row) const {
    const ReplayMessage& message = messages_[row];
    std::int64_t observed = kNoTime;
    std::int64_t replayed = kNoTime;
    const auto wait = [&](std::int64_t time, std::int64_t gained) {
      observed = std::max(observed, time);
      replayed = std::max(replayed, time - gained);
    };
    if (message.input_row != kNoRow) {
      const auto input = static_cast<std::size_t>(message.input_row);
      const ReplayMessage& source = messages_[input];
      wait(source.start + source.transfer + message.input_lag, gains_[input].arrival);
    }
    if (message.before_row != kNoRow) {
      const auto before = static_cast<std::size_t>(message.before_row);
      const ReplayMessage& source = messages_[before];
      wait(source.start + source.sending + message.before_lag, gains_[before].end);
    }
    if (message.compute_row != kNoRow) {
      const auto compute = static_cast<std::size_t>(message.compute_row);
      wait(messages_[compute].start + message.compute_lag, gains_[compute].start);
    }
    // What made a credit possible is known well enough only where the message did wait for it: one that
    // came early would have come earlier still.
    if (message.posted != kNoTime && message.posted + message.credit_way >= observed) {
      wait(message.posted + message.credit_way, credit_gain(row));
    }
    const std::int64_t host = cuts_[row].host;
    if (observed == kNoTime) {
      return carried_[static_cast<std::size_t>(message.sender)] + host;
    }
    // A clock that is a little off may show a start before what it waited for; nothing is left to cut.
    const std::int64_t left = message.start - observed;
    return observed - replayed + std::min(host, std::max<std::int64_t>(left, 0));
  }

  std::int64_t credit_gain(std::size_t row) const {
    const ReplayMessage& message = messages_[row];
    if (message.grant_row == kNoRow) {
      return carried_[static_cast<std::size_t>(message.receiver)] + cuts_[row].credit;
    }
    const Gain& source = gains_[static_cast<std::size_t>(message.grant_row)];
    return (message.grant_is_send != 0 ? source.start : source.arrival) + cuts_[row].credit;
  }

  std::span<const ReplayMessage> messages_;
  std::span<const ReplayCut> cuts_;
  std::vector<Gain> gains_;
  std::vector<std::int64_t> carried_;
};

}  // namespace

bool replay(std::span<const ReplayMessage> messages, std::span<const ReplayCut> cuts,
            std::span<const std::int64_t> order, std::size_t hosts, std::span<std::int64_t> arrivals) {
  if (cuts.size() != messages.size() || arrivals.size() != messages.size() ||
      !std::ranges::all_of(messages,
                           [&](const ReplayMessage& message) { return valid(message, messages.size(), hosts); })) {
    return false;
  }
  Replay running(messages, cuts, hosts);
  for (const std::int64_t row : order) {
    if (row < 0 || static_cast<std::size_t>(row) >= messages.size()) {
      return false;
    }
    const auto at = static_cast<std::size_t>(row);
    arrivals[at] = running.arrival_of(at);
  }
  return true;
}

}  // namespace pulse
