// SPDX-License-Identifier: Apache-2.0
//
// Any bytes: the reader neither crashes nor depends on how they were cut into chunks.
#include <algorithm>

#include "fuzz_input.hpp"
#include "pulse/capture_reader.hpp"

namespace {

using pulse::fuzz::require;

void read_in_chunks(std::span<const std::byte> file, std::size_t chunk_bytes, pulse::CaptureReader& reader,
                    pulse::PacketBatch& batch) {
  while (!file.empty()) {
    const auto chunk = file.first(std::min(chunk_bytes, file.size()));
    reader.feed(chunk, batch);
    file = file.subspan(chunk.size());
  }
  reader.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::size_t chunk_bytes = 1U + data[0];
  const auto file = std::as_bytes(std::span(data, size)).subspan(1);

  pulse::CaptureReader whole_reader;
  pulse::CaptureReader chunk_reader;
  pulse::PacketBatch whole;
  pulse::PacketBatch chunked;
  read_in_chunks(file, std::max<std::size_t>(file.size(), 1), whole_reader, whole);
  read_in_chunks(file, chunk_bytes, chunk_reader, chunked);

  require(std::ranges::equal(whole.ns(), chunked.ns()));
  require(std::ranges::equal(whole.wire_bytes(), chunked.wire_bytes()));
  require(std::ranges::equal(whole.captured_bytes(), chunked.captured_bytes()));
  require(std::ranges::equal(whole.link_types(), chunked.link_types()));
  for (std::size_t index = 0; index < whole.size(); ++index) {
    require(std::ranges::equal(whole.data(index), chunked.data(index)));
  }
  require(whole_reader.stats().truncated_bytes == chunk_reader.stats().truncated_bytes);
  require(whole_reader.stats().packets == whole.size());
  return 0;
}
