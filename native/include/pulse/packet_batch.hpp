// SPDX-License-Identifier: Apache-2.0
//
// A batch of captured packets in columns: what every capture back end hands to
// the parser and the meter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pulse {

// Link-layer header in front of a packet; values are those of the LINKTYPE_ registry.
enum class LinkType : std::uint16_t {
  ethernet = 1,
  linux_sll = 113,   // Linux cooked capture, from interface "any" of older tools
  linux_sll2 = 276,  // the same, version 2
};

// Packets in the order of capture. The bytes of all packets lie in one buffer
// owned by the batch, so appending allocates only when a column grows; a
// batch that is cleared and filled again allocates nothing.
class PacketBatch {
 public:
  // Room for `packets` packets that hold `bytes` captured bytes together.
  void reserve(std::size_t packets, std::size_t bytes) {
    ns_.reserve(packets);
    wire_bytes_.reserve(packets);
    captured_bytes_.reserve(packets);
    link_types_.reserve(packets);
    offsets_.reserve(packets);
    buffer_.reserve(bytes);
  }

  // `wire_bytes` is the packet's length on the wire, `captured` the leading part that was kept.
  void append(std::int64_t ns, std::uint32_t wire_bytes, LinkType link_type, std::span<const std::byte> captured) {
    append_columns(ns, wire_bytes, link_type, captured.size());
    buffer_.insert(buffer_.end(), captured.begin(), captured.end());
  }

  // The same for a caller that makes the bytes: gives the zeroed place to write them to, valid until the next append.
  [[nodiscard]] std::span<std::byte> append_blank(std::int64_t ns, std::uint32_t wire_bytes, LinkType link_type,
                                                  std::size_t captured_bytes) {
    append_columns(ns, wire_bytes, link_type, captured_bytes);
    buffer_.resize(buffer_.size() + captured_bytes);
    return std::span(buffer_).last(captured_bytes);
  }

  void clear() noexcept {
    ns_.clear();
    wire_bytes_.clear();
    captured_bytes_.clear();
    link_types_.clear();
    offsets_.clear();
    buffer_.clear();
  }

  [[nodiscard]] std::size_t size() const noexcept { return ns_.size(); }
  [[nodiscard]] bool empty() const noexcept { return ns_.empty(); }

  [[nodiscard]] std::span<const std::int64_t> ns() const noexcept { return ns_; }
  [[nodiscard]] std::span<const std::uint32_t> wire_bytes() const noexcept { return wire_bytes_; }
  [[nodiscard]] std::span<const std::uint32_t> captured_bytes() const noexcept { return captured_bytes_; }
  [[nodiscard]] std::span<const LinkType> link_types() const noexcept { return link_types_; }

  // Where the kept bytes of each packet begin in bytes().
  [[nodiscard]] std::span<const std::size_t> offsets() const noexcept { return offsets_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return buffer_; }

  // The kept bytes of packet `index`, from its link-layer header on.
  [[nodiscard]] std::span<const std::byte> data(std::size_t index) const noexcept {
    return std::span(buffer_).subspan(offsets_[index], captured_bytes_[index]);
  }

 private:
  void append_columns(std::int64_t ns, std::uint32_t wire_bytes, LinkType link_type, std::size_t captured_bytes) {
    ns_.push_back(ns);
    wire_bytes_.push_back(wire_bytes);
    captured_bytes_.push_back(static_cast<std::uint32_t>(captured_bytes));
    link_types_.push_back(link_type);
    offsets_.push_back(buffer_.size());
  }

  std::vector<std::int64_t> ns_;
  std::vector<std::uint32_t> wire_bytes_;
  std::vector<std::uint32_t> captured_bytes_;
  std::vector<LinkType> link_types_;
  std::vector<std::size_t> offsets_;
  std::vector<std::byte> buffer_;
};

}  // namespace pulse
