// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <mutex>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "pulse/capture_reader.hpp"
#include "pulse/icrc.hpp"
#include "pulse/packet_batch.hpp"
#include "pulse/packet_parser.hpp"
#include "pulse/records.hpp"

namespace py = pybind11;

namespace pulse::python {
namespace {

std::span<const std::byte> as_bytes(const py::buffer_info& info) {
  return {static_cast<const std::byte*>(info.ptr), static_cast<std::size_t>(info.size * info.itemsize)};
}

py::buffer_info request_contiguous(const py::buffer& data) {
  py::buffer_info info = data.request();
  if (!PyBuffer_IsContiguous(info.view(), 'C')) {
    throw py::value_error("the buffer is not contiguous; pass bytes or a contiguous array");
  }
  return info;
}

// A reader that several threads may feed, one after the other: feed() gives up
// the GIL, so the GIL no longer keeps them apart. Nobody waits for the GIL with
// the mutex held, so taking the mutex with the GIL held cannot deadlock.
class LockedReader {
 public:
  explicit LockedReader(std::uint32_t keep_bytes) : reader_(keep_bytes) {}

  PacketBatch feed(const py::buffer& data) {
    const py::buffer_info info = request_contiguous(data);
    PacketBatch batch;
    // The copy of a large chunk takes milliseconds and touches no Python object; `info` holds the buffer.
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    reader_.feed(as_bytes(info), batch);
    return batch;
  }

  void finish() {
    const std::lock_guard lock(mutex_);
    reader_.finish();
  }

  py::dict stats() {
    CaptureStats stats;
    {
      const std::lock_guard lock(mutex_);
      stats = reader_.stats();
    }
    py::dict result;
    result["packets"] = stats.packets;
    result["bytes"] = stats.bytes;
    result["truncated_bytes"] = stats.truncated_bytes;
    result["zero_length"] = stats.zero_length;
    result["bad_timestamps"] = stats.bad_timestamps;
    result["untimed"] = stats.untimed;
    result["interface_drops"] = stats.interface_drops;
    result["skipped_link_types"] = stats.skipped_link_types;
    result["first_ns"] = stats.first_ns;
    result["last_ns"] = stats.last_ns;
    result["statistics_ns"] = stats.statistics_ns;
    result["corrupt"] = stats.corrupt.empty() ? py::object(py::none()) : py::str(stats.corrupt);
    return result;
  }

 private:
  CaptureReader reader_;
  std::mutex mutex_;
};

// A read-only view of a column; `owner` keeps the batch alive as long as the view lives.
template <typename T>
py::array column(const py::object& owner, std::span<const T> values) {
  py::array_t<T> view(static_cast<py::ssize_t>(values.size()), values.data(), owner);
  view.attr("flags").attr("writeable") = false;
  return std::move(view);
}

py::bytes packet_bytes(const PacketBatch& batch, py::ssize_t index) {
  if (index < 0 || static_cast<std::size_t>(index) >= batch.size()) {
    throw py::index_error("packet " + std::to_string(index) + " of a batch of " + std::to_string(batch.size()));
  }
  const auto data = batch.data(static_cast<std::size_t>(index));
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

py::array_t<PacketRecord> parse(const PacketBatch& batch) {
  py::array_t<PacketRecord> records(static_cast<py::ssize_t>(batch.size()));
  const std::span<PacketRecord> out(records.mutable_data(), batch.size());
  {
    // Pure C++ over memory that nobody else can see yet; batches never change once Python has them.
    const py::gil_scoped_release release;
    parse_batch(batch, out);
  }
  return records;
}

std::uint32_t icrc_of(const py::buffer& ip_packet) {
  const py::buffer_info info = request_contiguous(ip_packet);
  const auto value = icrc(as_bytes(info));
  if (!value) {
    throw py::value_error("not an IPv4 or IPv6 header followed by UDP and BTH");
  }
  return *value;
}

py::tuple outcome_names() {
  py::tuple names(kParseOutcomeNames.size());
  for (std::size_t index = 0; index < kParseOutcomeNames.size(); ++index) {
    names[index] = py::str(std::string(kParseOutcomeNames[index]));
  }
  return names;
}

void bind_batch(py::module_& module) {
  py::classh<PacketBatch>(module, "PacketBatch", "Captured packets in columns, in the order of capture.")
      .def(py::init<>())
      .def("__len__", &PacketBatch::size)
      .def_property_readonly("ns", [](const py::object& self) { return column(self, self.cast<PacketBatch&>().ns()); })
      .def_property_readonly(
          "wire_bytes", [](const py::object& self) { return column(self, self.cast<PacketBatch&>().wire_bytes()); })
      .def_property_readonly(
          "captured_bytes",
          [](const py::object& self) { return column(self, self.cast<PacketBatch&>().captured_bytes()); })
      .def("data", &packet_bytes, py::arg("index"), "Return the kept bytes of one packet, link-layer header first.")
      .def("parse", &parse, "Return one PACKET record for each packet.");
}

}  // namespace

void bind_reader(py::module_& module) {
  bind_batch(module);
  py::classh<LockedReader>(module, "CaptureReader", "Push parser for pcap and pcapng files.")
      .def(py::init<std::uint32_t>(), py::arg("keep_bytes") = kMaxCapturedBytes)
      .def("feed", &LockedReader::feed, py::arg("data"), "Return the packets that the next bytes of the file complete.")
      .def("finish", &LockedReader::finish, "Tell that the file has ended.")
      .def_property_readonly("stats", &LockedReader::stats);
  module.def("icrc", &icrc_of, py::arg("ip_packet"),
             "Return the ICRC of a packet given from its IP header to the end of the padded payload.");
  module.attr("OUTCOME_NAMES") = outcome_names();
}

}  // namespace pulse::python
