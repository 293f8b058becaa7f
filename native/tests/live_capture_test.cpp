// SPDX-License-Identifier: Apache-2.0
//
// What of the live capture needs no interface and no privilege: the filter, run by the kernel, and errors.
#include "live/live_capture.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "check.hpp"
#include "live/packet_filter.hpp"
#include "pulse/opcode_traits.hpp"
#include "pulse/packet_parser.hpp"
#include "traffic.hpp"

namespace {

using pulse::live::Selection;

// Two sockets: what goes into the first and passes the filter can be received from the second.
class FilteredPair {
 public:
  explicit FilteredPair(Selection selection) : program_(pulse::live::make_filter(selection)) {
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends_.data()), 0);
    const sock_fprog filter{static_cast<std::uint16_t>(program_.size()), program_.data()};
    CHECK_EQ(setsockopt(ends_[1], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)), 0);
  }
  FilteredPair(const FilteredPair&) = delete;
  FilteredPair& operator=(const FilteredPair&) = delete;
  ~FilteredPair() {
    for (const int end : ends_) close(end);
  }

  // How many bytes of a packet the filter keeps; 0 when it takes none.
  std::size_t kept(std::span<const std::byte> packet) {
    CHECK_EQ(send(ends_[0], packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
    std::array<std::byte, 65536> room{};
    const ssize_t received = recv(ends_[1], room.data(), room.size(), 0);
    return received > 0 ? static_cast<std::size_t>(received) : 0;
  }

 private:
  std::vector<sock_filter> program_;
  std::array<int, 2> ends_{};
};

TEST("the kernel's filter takes all RoCE traffic, and steered all of it but the middles of messages") {
  FilteredPair all(Selection::all);
  FilteredPair steered(Selection::steered);
  pulse::bench::TrafficConfig config;
  config.flows = 8;
  pulse::bench::Traffic traffic(config);
  pulse::PacketBatch batch;
  std::vector<std::uint32_t> flows;
  traffic.fill(batch, 3000, flows);
  std::size_t middles = 0;
  for (std::size_t index = 0; index < batch.size(); ++index) {
    pulse::PacketRecord record{};
    const auto outcome =
        pulse::parse_packet(batch.data(index), pulse::LinkType::ethernet, batch.wire_bytes()[index], record);
    CHECK(outcome == pulse::ParseOutcome::roce);
    const bool middle = pulse::opcode_traits(record.opcode).place == pulse::MessagePlace::middle;
    middles += static_cast<std::size_t>(middle);
    CHECK(all.kept(batch.data(index)) > 50);
    CHECK_EQ(steered.kept(batch.data(index)) > 0, !middle);
  }
  CHECK(middles > 100);
}

TEST("a capture that cannot begin says on which interface and why") {
  int error = 0;
  std::string text;
  try {
    pulse::live::LiveConfig config;
    config.interface = "no-such-device";
    const pulse::live::LiveCapture capture(config);
  } catch (const pulse::live::CaptureError& failure) {
    error = failure.error();
    text = failure.what();
  }
  // Without the capability the socket itself is refused.
  CHECK(error == ENODEV || error == EPERM);
  CHECK(text.starts_with("capture on no-such-device: "));
}

}  // namespace
