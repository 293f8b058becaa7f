// SPDX-License-Identifier: Apache-2.0
//
// Batches as nanosecond pcap files of Ethernet packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "pulse/packet_batch.hpp"

namespace pulse::sim {

// The 24 bytes that begin a file, little-endian. `snap_bytes` 0 stands for whole packets.
[[nodiscard]] std::vector<std::byte> pcap_header(std::uint32_t snap_bytes);

// The batch's packets as they follow in the file. Throws std::invalid_argument for a packet that is no Ethernet or
// whose stamp does not fit into the format's 32 bits of seconds.
[[nodiscard]] std::vector<std::byte> pcap_records(const PacketBatch& batch);

// A file that stays open while batches are appended. Throws std::system_error, with the path, when the system refuses.
class CaptureWriter {
 public:
  // Replaces a file that exists.
  CaptureWriter(std::string path, std::uint32_t snap_bytes);

  void append(const PacketBatch& batch);

  // Writes what is buffered and closes the file; without it, errors of the last bytes go unseen.
  void close();

 private:
  struct Closer {
    void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
  };

  void write(const std::vector<std::byte>& bytes);
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  std::vector<std::byte> records_;  // kept for its memory
};

}  // namespace pulse::sim
