// SPDX-License-Identifier: Apache-2.0
#include "sim/capture_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace pulse::sim {
namespace {

constexpr std::uint32_t kNanosecondMagic = 0xa1b23c4d;
constexpr std::uint32_t kVersion = 4U << 16 | 2U;  // 2.4
constexpr std::uint32_t kMaxSnapBytes = 262144;
constexpr std::size_t kRecordHeaderBytes = 16;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

std::byte* put32(std::byte* at, std::uint32_t value) noexcept {
  for (std::uint32_t shift = 0; shift < 32; shift += 8) {
    *at++ = static_cast<std::byte>(value >> shift);
  }
  return at;
}

void fill_records(const PacketBatch& batch, std::vector<std::byte>& records) {
  std::size_t bytes = 0;
  for (const std::uint32_t captured_bytes : batch.captured_bytes()) {
    bytes += kRecordHeaderBytes + captured_bytes;
  }
  records.resize(bytes);
  std::byte* at = records.data();
  for (std::size_t index = 0; index < batch.size(); ++index) {
    const std::int64_t ns = batch.ns()[index];
    if (ns < 0 || ns / kNsPerSecond > std::numeric_limits<std::uint32_t>::max()) {
      throw std::invalid_argument("stamp " + std::to_string(ns) + " ns of packet " + std::to_string(index) +
                                  " does not fit into a pcap file (1970 to 2106)");
    }
    if (batch.link_types()[index] != LinkType::ethernet) {
      throw std::invalid_argument("packet " + std::to_string(index) + " is no Ethernet packet");
    }
    at = put32(at, static_cast<std::uint32_t>(ns / kNsPerSecond));
    at = put32(at, static_cast<std::uint32_t>(ns % kNsPerSecond));
    at = put32(at, batch.captured_bytes()[index]);
    at = put32(at, batch.wire_bytes()[index]);
    const std::span<const std::byte> data = batch.data(index);
    at = std::copy(data.begin(), data.end(), at);
  }
}

}  // namespace

std::vector<std::byte> pcap_header(std::uint32_t snap_bytes) {
  std::vector<std::byte> header(24);
  std::byte* at = put32(header.data(), kNanosecondMagic);
  at = put32(at, kVersion);
  at = put32(at, 0);  // time zone
  at = put32(at, 0);  // accuracy
  at = put32(at, snap_bytes == 0 ? kMaxSnapBytes : snap_bytes);
  put32(at, static_cast<std::uint32_t>(LinkType::ethernet));
  return header;
}

std::vector<std::byte> pcap_records(const PacketBatch& batch) {
  std::vector<std::byte> records;
  fill_records(batch, records);
  return records;
}

CaptureWriter::CaptureWriter(std::string path, std::uint32_t snap_bytes)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
  if (!file_) {
    fail("cannot create");
  }
  write(pcap_header(snap_bytes));
}

void CaptureWriter::append(const PacketBatch& batch) {
  fill_records(batch, records_);
  write(records_);
}

void CaptureWriter::close() {
  if (file_ && std::fclose(file_.release()) != 0) {
    fail("cannot finish");
  }
}

void CaptureWriter::write(const std::vector<std::byte>& bytes) {
  if (!file_) {
    throw std::logic_error(path_ + ": written to after close()");
  }
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    fail("cannot write");
  }
}

void CaptureWriter::fail(const char* what) const {
  throw std::system_error(errno, std::generic_category(), std::string(what) + " " + path_);
}

}  // namespace pulse::sim
