// SPDX-License-Identifier: Apache-2.0
#include "pulse/psn.hpp"

namespace pulse {

void PsnHoles::add(PsnPosition begin, PsnPosition end) {
  if (ranges_.size() == kMaxRanges) ranges_.erase(ranges_.begin());
  const auto after = std::find_if(ranges_.begin(), ranges_.end(), [=](const Range& r) { return r.begin > begin; });
  ranges_.insert(after, {begin, end});
}

bool PsnHoles::fill(PsnPosition position) {
  const auto range = std::find_if(ranges_.begin(), ranges_.end(),
                                  [=](const Range& r) { return r.begin <= position && position < r.end; });
  if (range == ranges_.end()) return false;
  const Range rest{position + 1, range->end};
  range->end = position;
  const bool front_is_empty = range->begin == range->end;
  const bool rest_is_empty = rest.begin == rest.end;
  if (front_is_empty && rest_is_empty) {
    ranges_.erase(range);
  } else if (front_is_empty) {
    *range = rest;
  } else if (!rest_is_empty) {
    const auto front = range - ranges_.begin();
    if (ranges_.size() == kMaxRanges) {
      *range = rest;  // of the two halves the older one is forgotten
    } else {
      ranges_.insert(ranges_.begin() + front + 1, rest);
    }
  }
  return true;
}

bool PsnHoles::overlap(PsnPosition begin, PsnPosition end) const noexcept {
  return std::any_of(ranges_.begin(), ranges_.end(), [=](const Range& r) { return r.begin < end && begin < r.end; });
}

void PsnHistory::begin_life(PsnPosition& next, std::uint32_t psn) {
  // One wrap of room below, so that positions before the first stay positive.
  first_ = PsnPosition{psn} + kPsnMask + 1;
  next = first_ + 1;
  read_next_ = kNoPosition;
  read_limit_ = kNoPosition;
  holes_.clear();
}

bool PsnHistory::is_restart(std::int32_t distance, std::uint32_t psn, const PsnContext& context) const noexcept {
  if (!context.starts_message) return false;
  const bool at_start = psn == psn_of(first_) || psn == 0;  // some stacks begin every life at PSN 0
  const std::int32_t back = -distance;
  if (back > kImplausibleGoBack) return true;
  if (at_start && (back > kGoBackWindow || (back > 0 && context.idle_ns > kDeadIdleNs))) return true;
  return context.idle_ns > kRestartIdleNs && (back > kFarJump || distance > kFarJump);
}

PsnSighting PsnHistory::classify_behind(PsnPosition position) {
  if (holes_.fill(position)) return {position, Sight::late, 0};
  if (position < first_ && first_ - position <= kGoBackWindow) {
    // The view began with packets out of order.
    if (position + 1 < first_) holes_.add(position + 1, first_);
    first_ = position;
    return {position, Sight::late, 0};
  }
  return {position, Sight::repeat, 0};
}

PsnSighting PsnHistory::classify(PsnPosition& next, std::uint32_t psn, const PsnContext& context) {
  if (next == kNoPosition) {
    begin_life(next, psn);
    return {first_, Sight::next, 0};
  }
  const std::int32_t distance = psn_distance(psn, psn_of(next));
  const PsnPosition expected = next;
  const PsnPosition position = expected + distance;
  if (distance == 0) {
    next = position + 1;
    return {position, Sight::next, 0};
  }
  if (is_restart(distance, psn, context)) {
    begin_life(next, psn);
    return {first_, Sight::restart, 0};
  }
  if (distance < 0) return classify_behind(position);
  next = position + 1;
  const bool behind_read = expected == read_next_ && position <= read_limit_;
  if (context.jumps_are_normal || behind_read) return {position, Sight::next, 0};
  holes_.add(expected, position);
  return {position, Sight::ahead, static_cast<std::uint32_t>(distance)};
}

}  // namespace pulse
