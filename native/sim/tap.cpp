// SPDX-License-Identifier: Apache-2.0
//
// Sightings of each direction become packets in order of time (RunMerge), get
// the stamps of a wrong clock, and both directions are merged by stamp.
#include "sim/tap.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "sim/capture_faults.hpp"
#include "sim/clock.hpp"
#include "sim/headers.hpp"
#include "sim/random.hpp"
#include "sim/run_merge.hpp"

namespace pulse::sim {
namespace {

constexpr double kNoiseCut = 4;
constexpr double kMaxDelayNs = 1e12;
constexpr std::uint32_t kMaxSampleShift = 31;
constexpr Picoseconds kForever = std::numeric_limits<Picoseconds>::max() / 4;

// What a tap draws for; each has a stream of its own, so that switching one off does not move the others.
enum class Purpose : std::uint8_t { sampling, copy, noise, losses, polls };

std::uint64_t seed_of(const TapConfig& config, Purpose purpose, bool sent = false) {
  return derive_seed(config.seed, static_cast<std::uint64_t>(purpose), sent ? 1 : 0);
}

void check_range(const char* field, double value, double lowest, double highest) {
  if (std::isnan(value) || value < lowest || value > highest) {
    throw std::invalid_argument(std::string(field) + ": " + std::to_string(value) + " is not between " +
                                std::to_string(lowest) + " and " + std::to_string(highest));
  }
}

TapConfig checked(const TapConfig& config) {
  check_range("sample_shift", config.sample_shift, 0, kMaxSampleShift);
  check_range("copy_delay_ns", config.copy_delay_ns, 0, kMaxDelayNs);
  check_range("copy_jitter_ns", config.copy_jitter_ns, 0, kMaxDelayNs);
  check_range("stamp_noise_ns", config.stamp_noise_ns, 0, kMaxDelayNs);
  check_range("poll_interval_ns", config.poll_interval_ns, 0, kMaxDelayNs);
  check_range("loss_probability", config.loss_probability, 0, 1);
  check_range("mean_loss_packets", config.mean_loss_packets, 1, 1e12);
  return config;
}

// Gives stamps to packets whose times grow.
class Stamper {
 public:
  Stamper(double noise_ns, std::uint64_t seed)
      : noise_ns_(noise_ns),
        most_noise_ns_(static_cast<std::int64_t>(std::ceil(noise_ns * kNoiseCut)) + 1),
        random_(seed) {}

  Reading stamp(const Clock& clock, Picoseconds ps) noexcept {
    Reading reading = clock.read(ps, cursor_);
    if (noise_ns_ > 0) {
      const double noise = std::clamp(random_.normal(), -kNoiseCut, kNoiseCut) * noise_ns_;
      reading.shown_ns += static_cast<std::int64_t>(std::floor(noise + 0.5));
    }
    return last_ = not_before_last(reading);
  }

  // The least that the next packet can get if it does not come before `ps`.
  [[nodiscard]] Reading lowest(const Clock& clock, Picoseconds ps) noexcept {
    if (ps <= -kForever || ps >= kForever) {
      constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
      constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
      return ps < 0 ? Reading{kLeast, kLeast} : Reading{kMost, kMost};
    }
    std::size_t cursor = cursor_;
    Reading reading = clock.read(ps, cursor);
    reading.shown_ns -= most_noise_ns_;
    return not_before_last(reading);
  }

 private:
  [[nodiscard]] Reading not_before_last(const Reading& reading) const noexcept {
    return reading.steps == last_.steps ? std::max(reading, last_) : reading;
  }

  double noise_ns_;
  std::int64_t most_noise_ns_;
  Random random_;
  std::size_t cursor_ = 0;
  Reading last_{-1, 0};
};

// Packets of one direction. `key` orders them between the directions: the stamp, or for a receive loop, which stamps
// both directions together, the time of arrival.
struct Direction {
  Direction(const TapConfig& config, bool sent, std::size_t ends)
      : is_sent(sent),
        is_copied(sent && config.sent_stamp == SentStamp::copy),
        runs(config.mode, config.sample_shift, seed_of(config, Purpose::sampling, sent), is_copied, ends),
        copy_random(seed_of(config, Purpose::copy)),
        stamper(config.stamp_noise_ns, seed_of(config, Purpose::noise, sent)) {}

  bool is_sent;
  bool is_copied;
  RunMerge runs;
  Random copy_random;
  Stamper stamper;
  Picoseconds seen_ps = -kForever;  // of the last packet taken from `runs`
  bool has_packet = false;
  RunMerge::Item item;  // the next packet
  Reading key;          // its key, or without one the least that a later packet can have
};

}  // namespace

class Tap::Pipeline {
 public:
  Pipeline(const TapConfig& config, const WireStyle& style, std::span<const NicAddress> nics,
           std::span<const EndAddress> ends)
      : config_(checked(config)),
        end_count_(ends.size()),
        clock_(config_.clock),
        writer_(style, nics, ends, config_.snap_bytes),
        sent_(config_, true, ends.size()),
        received_(config_, false, ends.size()),
        losses_(config_.loss_probability, config_.mean_loss_packets, seed_of(config_, Purpose::losses)),
        loop_(config_.poll_interval_ns, seed_of(config_, Purpose::polls)),
        loop_stamper_(config_.stamp_noise_ns, seed_of(config_, Purpose::noise)) {}

  void add(std::span<const Sighting> sightings) {
    for (const Sighting& sighting : sightings) {
      if (sighting.run.end >= end_count_) {
        throw std::invalid_argument("sightings: end " + std::to_string(sighting.run.end) + " is beyond the " +
                                    std::to_string(end_count_) + " of the tap");
      }
      if (!sighting.sent) {
        received_.runs.add(sighting);
      } else if (config_.sent_stamp != SentStamp::none) {
        sent_.runs.add(sighting);
      }
    }
  }

  void drain(Picoseconds complete_ps, PacketBatch& batch) {
    for (Direction* direction : {&sent_, &received_}) {
      direction->runs.settle(complete_ps);
      if (!direction->has_packet) {
        take_next(*direction);
      }
    }
    while (true) {
      Direction& first = sent_.key <= received_.key ? sent_ : received_;
      if (!first.has_packet) {
        return;  // one that comes before the other direction's next may still be added
      }
      emit(first, batch);
      take_next(first);
    }
  }

  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

 private:
  [[nodiscard]] bool is_polled() const noexcept { return config_.poll_interval_ns > 0; }

  void take_next(Direction& direction) {
    direction.has_packet = direction.runs.next(direction.item);
    if (!direction.has_packet) {
      const Picoseconds settled_ps = direction.runs.settled_ps();
      const Picoseconds lowest_ps = std::max(
          direction.seen_ps, direction.is_copied ? std::min(settled_ps, kForever) + copy_delay_ps() : settled_ps);
      direction.key = is_polled() ? Reading{0, lowest_ps} : direction.stamper.lowest(clock_, lowest_ps);
      return;
    }
    Picoseconds ps = direction.item.ps;
    if (direction.is_copied) {
      const double jitter_ns =
          config_.copy_jitter_ns > 0 ? direction.copy_random.exponential(config_.copy_jitter_ns) : 0;
      ps += copy_delay_ps() + static_cast<Picoseconds>(jitter_ns * 1000);
    }
    direction.seen_ps = std::max(direction.seen_ps, ps);
    direction.key = is_polled() ? Reading{0, direction.seen_ps} : direction.stamper.stamp(clock_, direction.seen_ps);
  }

  void emit(Direction& direction, PacketBatch& batch) {
    std::int64_t stamp_ns = direction.key.shown_ns;
    bool is_lost = losses_.lose();
    if (!is_lost && is_polled()) {
      Picoseconds stamp_ps = 0;
      is_lost = !loop_.accept(direction.seen_ps, stamp_ps);
      stamp_ns = is_lost ? 0 : loop_stamper_.stamp(clock_, stamp_ps).shown_ns;
    }
    if (is_lost) {
      ++lost_;
    } else {
      writer_.append(direction.runs.run(direction.item), direction.item.packet, !direction.is_sent, stamp_ns, batch);
    }
    direction.runs.release(direction.item);
  }

  [[nodiscard]] Picoseconds copy_delay_ps() const noexcept {
    return static_cast<Picoseconds>(config_.copy_delay_ns * 1000);
  }

  TapConfig config_;
  std::size_t end_count_;
  Clock clock_;
  FrameWriter writer_;
  Direction sent_;
  Direction received_;
  LossBursts losses_;
  ReceiveLoop loop_;
  Stamper loop_stamper_;
  std::uint64_t lost_ = 0;
};

Tap::Tap(const TapConfig& config, const WireStyle& style, std::span<const NicAddress> nics,
         std::span<const EndAddress> ends)
    : pipeline_(std::make_unique<Pipeline>(config, style, nics, ends)) {}

Tap::Tap(Tap&&) noexcept = default;
Tap& Tap::operator=(Tap&&) noexcept = default;
Tap::~Tap() = default;

void Tap::expand(std::span<const Sighting> sightings, Picoseconds complete_ps, PacketBatch& batch) {
  pipeline_->add(sightings);
  pipeline_->drain(complete_ps, batch);
}

void Tap::finish(PacketBatch& batch) { pipeline_->drain(std::numeric_limits<Picoseconds>::max(), batch); }

std::uint64_t Tap::lost() const noexcept { return pipeline_->lost(); }

}  // namespace pulse::sim
