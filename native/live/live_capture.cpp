// SPDX-License-Identifier: Apache-2.0
#include "live/live_capture.hpp"

#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

namespace pulse::live {
namespace {

constexpr std::uint32_t kMaxRings = 64;
constexpr std::uint32_t kVlanTagBytes = 4;
// The kernel hands a block over at most this many of its timeouts late.
constexpr std::uint32_t kHoldTimeouts = 4;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

ifreq request_for(const std::string& name) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  return request;
}

int index_of(int fd, const std::string& name) {
  ifreq request = request_for(name);
  return ioctl(fd, SIOCGIFINDEX, &request) == 0 ? request.ifr_ifindex : 0;
}

void check(const LiveConfig& config) {
  if (config.interface.empty() || config.interface.size() >= IFNAMSIZ)
    throw CaptureError(EINVAL, "this is no name of an interface");
  if (config.rings < 1 || config.rings > kMaxRings) throw CaptureError(EINVAL, "rings must be 1 to 64");
}

// Whether the device stamps every packet that it receives. Asking needs no privilege.
bool stamps_all_packets(int fd, const std::string& name) {
  hwtstamp_config setting{};
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&setting);
  return ioctl(fd, SIOCGHWTSTAMP, &request) == 0 && setting.rx_filter == HWTSTAMP_FILTER_ALL;
}

bool is_sent_by_us(const tpacket3_hdr& packet) noexcept {
  sockaddr_ll address{};
  std::memcpy(&address, reinterpret_cast<const std::byte*>(&packet) + TPACKET_ALIGN(sizeof(tpacket3_hdr)),
              sizeof(address));
  return address.sll_pkttype == PACKET_OUTGOING;
}

// The ring with the oldest packet, and the stamp of the oldest in any other.
struct Oldest {
  PacketRing* ring = nullptr;
  std::int64_t ns = kAlways;
  std::int64_t next_ns = kAlways;
};

Oldest find_oldest(std::span<PacketRing> rings) noexcept {
  Oldest oldest;
  for (PacketRing& ring : rings) {
    const tpacket3_hdr* packet = ring.peek();
    if (packet == nullptr) continue;
    const std::int64_t ns = stamp_ns(*packet);
    if (oldest.ring == nullptr || ns < oldest.ns) {
      oldest = {&ring, ns, oldest.ns};
    } else {
      oldest.next_ns = std::min(oldest.next_ns, ns);
    }
  }
  return oldest;
}

}  // namespace

LiveCapture::LiveCapture(LiveConfig config)
    : config_(std::move(config)), newest_ns_(kNever), last_news_(std::chrono::steady_clock::now()) {
  try {
    check(config_);
    open_rings();
  } catch (const CaptureError& error) {
    const bool forbidden = error.error() == EPERM || error.error() == EACCES;
    throw CaptureError(error.error(), "capture on " + config_.interface + ": " + error.what() +
                                          (forbidden ? "; run as root or give the service CAP_NET_RAW" : ""));
  }
}

void LiveCapture::open_rings() {
  for (std::uint32_t ring = 0; ring < config_.rings; ++ring) rings_.emplace_back(config_.ring);
  const int fd = rings_.front().fd();
  interface_index_ = index_of(fd, config_.interface);
  if (interface_index_ == 0) throw CaptureError(ENODEV, "there is no such interface");
  ifreq request = request_for(config_.interface);
  if (ioctl(fd, SIOCGIFHWADDR, &request) != 0) throw_errno("the kind of the interface is unknown");
  const auto kind = request.ifr_hwaddr.sa_family;
  if (kind != ARPHRD_ETHER && kind != ARPHRD_LOOPBACK) throw CaptureError(EINVAL, "this is no Ethernet interface");
  // Each packet of a loopback device passes twice.
  const bool outgoing = config_.outgoing && kind != ARPHRD_LOOPBACK;
  hardware_stamps_ = stamps_all_packets(fd, config_.interface);
  std::uint16_t group = 0;
  for (const PacketRing& ring : rings_) {
    if (hardware_stamps_) ring.use_hardware_stamps();
    if (!outgoing) ring.ignore_outgoing();
    ring.bind_to(interface_index_);
    if (rings_.size() > 1) group = ring.join_fanout(group);
    if (config_.promiscuous) ring.make_promiscuous(interface_index_);
  }
  // Only now that the sockets share the packets: before, each would have taken all.
  const auto filter = make_filter(config_.selection);
  for (const PacketRing& ring : rings_) ring.set_filter(filter);
}

bool LiveCapture::wait(std::chrono::milliseconds timeout) {
  std::vector<pollfd> polled;
  polled.reserve(rings_.size());
  for (const PacketRing& ring : rings_) polled.push_back({ring.fd(), POLLIN, 0});
  if (poll(polled.data(), polled.size(), static_cast<int>(timeout.count())) <= 0) return false;
  bool readable = false;
  bool down = false;
  for (std::size_t index = 0; index < polled.size(); ++index) {
    readable |= (polled[index].revents & POLLIN) != 0;
    if ((polled[index].revents & POLLERR) != 0) down |= rings_[index].take_error() == ENETDOWN;
  }
  if (down) ++counts_.times_down;
  return readable;
}

// Up to which stamp packets can be handed out: a ring that is empty now may still bring older packets than the others
// have, until the kernel must have handed over all of that time.
std::int64_t LiveCapture::find_horizon() {
  if (rings_.size() == 1) return kAlways;
  bool all_have_packets = true;
  const std::int64_t before_ns = newest_ns_;
  for (PacketRing& ring : rings_) {
    if (ring.peek() == nullptr) {
      all_have_packets = false;
    } else {
      newest_ns_ = std::max(newest_ns_, ring.block_end_ns());
    }
  }
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::milliseconds hold(kHoldTimeouts * config_.ring.retire_ms);
  if (newest_ns_ != before_ns) last_news_ = now;
  if (all_have_packets || now - last_news_ >= hold) return kAlways;
  return newest_ns_ - std::chrono::nanoseconds(hold).count();
}

std::size_t LiveCapture::merge(std::size_t max_packets, PacketBatch& batch) {
  std::size_t merged = 0;
  while (merged < max_packets) {
    const std::int64_t horizon_ns = find_horizon();
    const Oldest oldest = find_oldest(rings_);
    PacketRing* first = oldest.ring;
    if (first == nullptr || oldest.ns > horizon_ns) break;
    // Packets of one ring in a row need no new comparison, until another ring has an older one or may get it.
    const std::int64_t until_ns = std::min(oldest.next_ns, horizon_ns);
    for (const tpacket3_hdr* packet = first->peek();
         packet != nullptr && stamp_ns(*packet) <= until_ns && merged < max_packets; packet = first->peek()) {
      append(*packet, batch);
      first->pop();
      ++merged;
    }
  }
  return merged;
}

void LiveCapture::append(const tpacket3_hdr& packet, PacketBatch& batch) {
  if (hardware_stamps_ && (packet.tp_status & TP_STATUS_TS_RAW_HARDWARE) == 0) {
    ++counts_.unstamped;
    return;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(&packet) + packet.tp_mac;
  // The kernel has taken the outer tag off.
  const std::uint32_t tag_bytes = (packet.tp_status & TP_STATUS_VLAN_VALID) != 0 ? kVlanTagBytes : 0;
  batch.append(stamp_ns(packet), packet.tp_len + tag_bytes, LinkType::ethernet, {bytes, packet.tp_snaplen});
  ++counts_.packets;
  if (is_sent_by_us(packet)) ++counts_.outgoing;
}

void LiveCapture::read(std::chrono::milliseconds timeout, std::size_t max_packets, PacketBatch& batch) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (merge(max_packets, batch) == 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    // A held packet is readable all the time and becomes due without any event.
    const bool holds =
        std::any_of(rings_.begin(), rings_.end(), [](PacketRing& ring) { return ring.peek() != nullptr; });
    if (holds) {
      const auto pause = std::min<std::int64_t>(left.count(), std::max(config_.ring.retire_ms, 1U));
      static_cast<void>(poll(nullptr, 0, static_cast<int>(pause)));
    } else {
      static_cast<void>(wait(left));
    }
  }
}

bool LiveCapture::is_attached() const noexcept {
  return index_of(rings_.front().fd(), config_.interface) == interface_index_;
}

LiveCounts LiveCapture::counts() {
  counts_.dropped = 0;
  counts_.freezes = 0;
  for (PacketRing& ring : rings_) {
    const RingCounts ring_counts = ring.counts();
    counts_.dropped += ring_counts.dropped;
    counts_.freezes += ring_counts.freezes;
  }
  return counts_;
}

}  // namespace pulse::live
