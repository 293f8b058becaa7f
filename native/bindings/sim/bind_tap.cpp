// SPDX-License-Identifier: Apache-2.0
#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "bindings.hpp"
#include "pulse/packet_batch.hpp"
#include "sim/capture_writer.hpp"
#include "sim/tap.hpp"

namespace py = pybind11;

namespace pulse::python {

using namespace sim;

namespace {

// A tap with the tables that it refers to: thousands of taps share them.
class OwningTap {
 public:
  OwningTap(std::uint32_t nic, const TapConfig& config, const WireStyle& style, py::array addresses, py::array ends)
      : nic_(nic),
        addresses_(std::move(addresses)),
        ends_(std::move(ends)),
        tap_(config, style, rows_in<NicAddress>(addresses_), rows_in<EndAddress>(ends_)) {}

  PacketBatch expand(const Sightings& sightings) {
    PacketBatch batch;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) throw std::runtime_error("another thread is using this tap");
    // Header bytes of thousands of packets, into a batch that nobody else can see yet.
    const py::gil_scoped_release release;
    tap_.expand(sightings.by_nic.at(nic_), sightings.complete_ps, batch);
    return batch;
  }

  PacketBatch finish() {
    PacketBatch batch;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) throw std::runtime_error("another thread is using this tap");
    const py::gil_scoped_release release;  // as above
    tap_.finish(batch);
    return batch;
  }

  [[nodiscard]] std::uint64_t lost() const noexcept { return tap_.lost(); }

 private:
  std::uint32_t nic_;
  py::array addresses_;
  py::array ends_;
  Tap tap_;
  std::mutex mutex_;
};

// A file with its name, so that errors can be told as Python tells them.
class NamedWriter {
 public:
  NamedWriter(std::string path, std::uint32_t snap_bytes) : path_(std::move(path)) {
    told([&] { writer_.emplace(path_, snap_bytes); });
  }

  void append(const PacketBatch& batch) {
    told([&] {
      const py::gil_scoped_release release;  // disks are slow; the batch never changes once Python has it
      writer_->append(batch);
    });
  }

  void close() {
    told([&] { writer_->close(); });
  }

 private:
  template <typename Action>
  void told(Action action) const {
    try {
      action();
    } catch (const std::system_error& error) {
      errno = error.code().value();
      PyErr_SetFromErrnoWithFilename(PyExc_OSError, path_.c_str());
      throw py::error_already_set();
    }
  }

  std::string path_;
  std::optional<CaptureWriter> writer_;
};

template <typename T>
void set(const py::dict& values, const char* name, T& field) {
  if (values.contains(name)) field = values[name].cast<T>();
}

WireStyle style_of(const py::dict& values) {
  WireStyle style;
  set(values, "mtu", style.mtu);
  set(values, "vlan", style.vlan);
  set(values, "ipv6", style.ipv6);
  set(values, "migration_bit", style.migration_bit);
  set(values, "type_of_service", style.type_of_service);
  set(values, "partition_key", style.partition_key);
  set(values, "payload_byte", style.payload_byte);
  set(values, "checksums", style.checksums);
  return style;
}

TapConfig config_of(const py::dict& values) {
  TapConfig config;
  set(values, "mode", config.mode);
  set(values, "sample_shift", config.sample_shift);
  set(values, "sent_stamp", config.sent_stamp);
  set(values, "copy_delay_ns", config.copy_delay_ns);
  set(values, "copy_jitter_ns", config.copy_jitter_ns);
  set(values, "stamp_noise_ns", config.stamp_noise_ns);
  set(values, "poll_interval_ns", config.poll_interval_ns);
  set(values, "loss_probability", config.loss_probability);
  set(values, "mean_loss_packets", config.mean_loss_packets);
  set(values, "snap_bytes", config.snap_bytes);
  set(values, "seed", config.seed);
  for (const auto& [true_ns, shown_ns] : values["clock"].cast<std::vector<std::pair<std::int64_t, std::int64_t>>>()) {
    config.clock.push_back({true_ns, shown_ns});
  }
  return config;
}

std::unique_ptr<OwningTap> make_tap(std::uint32_t nic, const py::dict& tables, const py::dict& config,
                                    const py::dict& style) {
  return std::make_unique<OwningTap>(nic, config_of(config), style_of(style), table_of<NicAddress>(tables, "addresses"),
                                     table_of<EndAddress>(tables, "ends"));
}

}  // namespace

void bind_tap(py::module_& module) {
  py::native_enum<TapMode>(module, "TapMode", "enum.IntEnum")
      .value("ALL", TapMode::all)
      .value("STEERED", TapMode::steered)
      .value("SAMPLED", TapMode::sampled)
      .finalize();
  py::native_enum<SentStamp>(module, "SentStamp", "enum.IntEnum")
      .value("WIRE", SentStamp::wire)
      .value("COPY", SentStamp::copy)
      .value("NONE", SentStamp::none)
      .finalize();
  py::classh<OwningTap>(module, "Tap", "The tap of one NIC: sightings in, captured packets out.")
      .def(py::init(&make_tap), py::arg("nic"), py::arg("tables"), py::arg("config"), py::arg("style"))
      .def("expand", &OwningTap::expand, py::arg("sightings"), "Return the packets whose place is settled.")
      .def("finish", &OwningTap::finish, "Return the rest.")
      .def_property_readonly("lost", &OwningTap::lost);
  py::classh<NamedWriter>(module, "CaptureWriter", "A nanosecond pcap file that batches are appended to.")
      .def(py::init<std::string, std::uint32_t>(), py::arg("path"), py::arg("snap_bytes"))
      .def("append", &NamedWriter::append, py::arg("batch"))
      .def("close", &NamedWriter::close);
}

}  // namespace pulse::python
