// SPDX-License-Identifier: Apache-2.0
#include "sim/capture_writer.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

#include <unistd.h>

#include "bytes.hpp"
#include "check.hpp"

namespace {

using pulse::LinkType;
using pulse::PacketBatch;
using pulse::sim::CaptureWriter;
using pulse::test::Bytes;

PacketBatch two_packets() {
  PacketBatch batch;
  batch.append(1'700'000'000'123'456'789, 100, LinkType::ethernet, Bytes{1, 2, 3}.get());
  batch.append(1'700'000'001'000'000'000, 4, LinkType::ethernet, Bytes{4, 5, 6, 7}.get());
  return batch;
}

Bytes expected_records() {
  constexpr auto kLittle = std::endian::little;
  return Bytes()
      .u32(1'700'000'000, kLittle)
      .u32(123'456'789, kLittle)
      .u32(3, kLittle)
      .u32(100, kLittle)
      .add({1, 2, 3})
      .u32(1'700'000'001, kLittle)
      .u32(0, kLittle)
      .u32(4, kLittle)
      .u32(4, kLittle)
      .add({4, 5, 6, 7});
}

Bytes expected_header() { return Bytes{0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0}.zeros(8).add({128, 0, 0, 0, 1, 0, 0, 0}); }

TEST("a batch gives the records of a little-endian nanosecond pcap file") {
  CHECK(pulse::sim::pcap_header(128) == expected_header().get());
  CHECK(pulse::sim::pcap_records(two_packets()) == expected_records().get());
  CHECK(pulse::sim::pcap_records({}).empty());
}

TEST("batches appended to a file follow each other behind one header") {
  const auto path = std::filesystem::temp_directory_path() / ("pulse_writer_" + std::to_string(getpid()) + ".pcap");
  CaptureWriter writer(path.string(), 128);
  writer.append(two_packets());
  writer.append(two_packets());
  writer.close();
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const Bytes expected = expected_header().add(expected_records()).add(expected_records());
  CHECK_EQ(content.size(), expected.size());
  CHECK(std::equal(content.begin(), content.end(), expected.get().begin(),
                   [](char a, std::byte b) { return static_cast<std::byte>(a) == b; }));
  std::filesystem::remove(path);
}

TEST("a file that cannot be written is an error with its path") {
  const auto failed_on = [](const std::string& path) {
    try {
      CaptureWriter writer(path, 0);
      writer.append(two_packets());
      writer.close();
    } catch (const std::system_error& error) {
      return std::string(error.what()).find(path) != std::string::npos && error.code().value() != 0;
    }
    return false;
  };
  CHECK(failed_on("/no such folder/a.pcap"));
  if (std::filesystem::exists("/dev/full")) {
    CHECK(failed_on("/dev/full"));
  }
}

TEST("stamps and packets that a pcap file of Ethernet cannot hold are refused") {
  const auto refused = [](std::int64_t ns, LinkType link_type) {
    PacketBatch batch;
    batch.append(ns, 1, link_type, Bytes{1}.get());
    try {
      static_cast<void>(pulse::sim::pcap_records(batch));
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  CHECK(refused(-1, LinkType::ethernet));
  CHECK(refused(INT64_MAX, LinkType::ethernet));
  CHECK(refused(1, LinkType::linux_sll));
  CHECK(!refused(0, LinkType::ethernet));
}

}  // namespace
