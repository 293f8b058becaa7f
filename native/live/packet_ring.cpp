// SPDX-License-Identifier: Apache-2.0
#include "live/packet_ring.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/net_tstamp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

namespace pulse::live {
namespace {

constexpr std::uint32_t kFrameBytes = 2048;  // means nothing to a TPACKET_V3 ring but must divide its blocks

template <typename T>
void set_option(int fd, int level, int option, const T& value, const char* what) {
  if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) throw_errno(what);
}

OwnedFd open_socket() {
  // Protocol 0 receives nothing until bind().
  OwnedFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) throw_errno("a packet socket cannot be opened");
  return fd;
}

std::byte* advanced(const void* from, std::size_t bytes) noexcept {
  return const_cast<std::byte*>(static_cast<const std::byte*>(from)) + bytes;
}

}  // namespace

void throw_errno(const std::string& what) {
  const int error = errno;
  throw CaptureError(error, what + ": " + std::generic_category().message(error));
}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

int OwnedFd::release() noexcept { return std::exchange(fd_, -1); }

MappedMemory::MappedMemory(int fd, std::size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw_errno("the packet ring cannot be mapped");
  data_ = static_cast<std::byte*>(memory);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, bytes_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = other.bytes_;
  }
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

PacketRing::PacketRing(const RingShape& shape) : shape_(shape), socket_(open_socket()) {
  constexpr int kVersion = TPACKET_V3;
  set_option(fd(), SOL_PACKET, PACKET_VERSION, kVersion, "the kernel has no TPACKET_V3");
  const sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
  set_filter({&nothing, 1});
  tpacket_req3 request{};
  request.tp_block_size = shape.block_bytes;
  request.tp_block_nr = shape.blocks;
  request.tp_frame_size = kFrameBytes;
  request.tp_frame_nr = shape.block_bytes / kFrameBytes * shape.blocks;
  request.tp_retire_blk_tov = shape.retire_ms;
  set_option(fd(), SOL_PACKET, PACKET_RX_RING, request,
             "the kernel refuses the packet ring; make it smaller or free memory");
  memory_ = MappedMemory(fd(), std::size_t{shape.block_bytes} * shape.blocks);
}

void PacketRing::set_filter(std::span<const sock_filter> program) const {
  // The kernel only reads the program.
  const sock_fprog filter{static_cast<std::uint16_t>(program.size()), const_cast<sock_filter*>(program.data())};
  set_option(fd(), SOL_SOCKET, SO_ATTACH_FILTER, filter, "the kernel refuses the packet filter");
}

void PacketRing::use_hardware_stamps() const {
  set_option(fd(), SOL_PACKET, PACKET_TIMESTAMP, int{SOF_TIMESTAMPING_RAW_HARDWARE},
             "the kernel refuses hardware time stamps");
}

void PacketRing::ignore_outgoing() const {
  set_option(fd(), SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "outgoing packets cannot be left out");
}

void PacketRing::bind_to(int interface_index) const {
  // Packets are stamped where they enter the stack, not where they reach the ring.
  set_option(fd(), SOL_SOCKET, SO_TIMESTAMPING, int{SOF_TIMESTAMPING_RX_SOFTWARE}, "packets cannot be stamped");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = interface_index;
  if (bind(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw_errno("a packet socket cannot be bound");
  }
}

void PacketRing::make_promiscuous(int interface_index) const {
  packet_mreq request{};
  request.mr_ifindex = interface_index;
  request.mr_type = PACKET_MR_PROMISC;
  set_option(fd(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, request, "the interface cannot be made promiscuous");
}

std::uint16_t PacketRing::join_fanout(std::uint16_t group) const {
  unsigned type = PACKET_FANOUT_HASH;
  if (group == 0) type |= PACKET_FANOUT_FLAG_UNIQUEID;
  set_option(fd(), SOL_PACKET, PACKET_FANOUT, std::uint32_t{group | type << 16U}, "sockets cannot share the packets");
  std::uint32_t value = 0;
  socklen_t bytes = sizeof(value);
  if (getsockopt(fd(), SOL_PACKET, PACKET_FANOUT, &value, &bytes) != 0) throw_errno("sockets cannot share the packets");
  return static_cast<std::uint16_t>(value);
}

tpacket_block_desc* PacketRing::block() const noexcept {
  return reinterpret_cast<tpacket_block_desc*>(memory_.data() + std::size_t{at_block_} * shape_.block_bytes);
}

const tpacket3_hdr* PacketRing::peek() noexcept {
  while (left_ == 0) {
    tpacket_block_desc* next = block();
    const std::atomic_ref status(next->hdr.bh1.block_status);
    if ((status.load(std::memory_order_acquire) & TP_STATUS_USER) == 0) return nullptr;
    left_ = next->hdr.bh1.num_pkts;
    packet_ = reinterpret_cast<const tpacket3_hdr*>(advanced(next, next->hdr.bh1.offset_to_first_pkt));
    if (left_ == 0) give_back();
  }
  return packet_;
}

void PacketRing::pop() noexcept {
  if (--left_ == 0) {
    give_back();
  } else {
    packet_ = reinterpret_cast<const tpacket3_hdr*>(advanced(packet_, packet_->tp_next_offset));
  }
}

void PacketRing::give_back() noexcept {
  const std::atomic_ref status(block()->hdr.bh1.block_status);
  status.store(TP_STATUS_KERNEL, std::memory_order_release);
  at_block_ = (at_block_ + 1) % shape_.blocks;
}

std::int64_t PacketRing::block_end_ns() const noexcept {
  const tpacket_bd_ts& last = block()->hdr.bh1.ts_last_pkt;
  return std::int64_t{last.ts_sec} * 1'000'000'000 + last.ts_nsec;
}

RingCounts PacketRing::counts() {
  // Asking sets the kernel's counters back to zero.
  tpacket_stats_v3 recent{};
  socklen_t bytes = sizeof(recent);
  if (getsockopt(fd(), SOL_PACKET, PACKET_STATISTICS, &recent, &bytes) != 0) throw_errno("the ring tells no losses");
  counts_.dropped += recent.tp_drops;
  counts_.freezes += recent.tp_freeze_q_cnt;
  return counts_;
}

int PacketRing::take_error() const noexcept {
  int error = 0;
  socklen_t bytes = sizeof(error);
  return getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

}  // namespace pulse::live
