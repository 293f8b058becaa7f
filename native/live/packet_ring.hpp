// SPDX-License-Identifier: Apache-2.0
//
// One AF_PACKET socket with its TPACKET_V3 ring: blocks of packets that the kernel
// fills and hands over, and that are read in place.
#pragma once

#include <linux/filter.h>
#include <linux/if_packet.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace pulse::live {

// Why there is no capture, in full sentences; `error` is the errno value.
class CaptureError : public std::runtime_error {
 public:
  CaptureError(int error, const std::string& text) : std::runtime_error(text), error_(error) {}
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  int error_;
};

// A file descriptor that closes itself.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) noexcept : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd();

  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int release() noexcept;
  int fd_ = -1;
};

// Memory shared with the kernel that unmaps itself.
class MappedMemory {
 public:
  MappedMemory() = default;
  MappedMemory(int fd, std::size_t bytes);
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct RingShape {
  std::uint32_t block_bytes = 1U << 18U;  // a power of two, at least a page
  std::uint32_t blocks = 64;
  std::uint32_t retire_ms = 8;  // a block that is not full is handed over after this time
};

// What the kernel counted; both only grow.
struct RingCounts {
  std::uint64_t dropped = 0;  // packets that found the ring full
  std::uint64_t freezes = 0;  // how often it became full
};

class PacketRing {
 public:
  // A socket on no interface yet, which takes nothing until it has a filter. All failures are a CaptureError.
  explicit PacketRing(const RingShape& shape);

  void set_filter(std::span<const sock_filter> program) const;
  // Stamps of the NIC's clock where a packet has one.
  void use_hardware_stamps() const;
  void ignore_outgoing() const;
  void bind_to(int interface_index) const;
  // The interface takes packets to others' addresses for as long as the socket lives.
  void make_promiscuous(int interface_index) const;
  // Shares the packets among sockets of one group, all packets of a flow with one of them; 0 makes a new group.
  // Returns the group.
  std::uint16_t join_fanout(std::uint16_t group) const;

  // The next packet that has been handed over, or null.
  [[nodiscard]] const tpacket3_hdr* peek() noexcept;
  // Goes on behind the packet that peek() gave, whose memory belongs to the kernel again from now on.
  void pop() noexcept;
  // Stamp of the last packet in the block that peek() looks at.
  [[nodiscard]] std::int64_t block_end_ns() const noexcept;

  [[nodiscard]] RingCounts counts();
  // Takes the error that waits at the socket; 0 is none.
  [[nodiscard]] int take_error() const noexcept;
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

 private:
  [[nodiscard]] tpacket_block_desc* block() const noexcept;
  void give_back() noexcept;

  RingShape shape_;
  OwnedFd socket_;
  MappedMemory memory_;
  std::uint32_t at_block_ = 0;
  std::uint32_t left_ = 0;  // packets of the block not popped yet; 0: the block is the kernel's
  const tpacket3_hdr* packet_ = nullptr;
  RingCounts counts_;
};

[[nodiscard]] inline std::int64_t stamp_ns(const tpacket3_hdr& packet) noexcept {
  return std::int64_t{packet.tp_sec} * 1'000'000'000 + packet.tp_nsec;
}

// Throws a CaptureError with what errno says.
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace pulse::live
