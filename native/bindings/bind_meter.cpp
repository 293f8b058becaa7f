// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "pulse/histogram.hpp"
#include "pulse/marker_hash.hpp"
#include "pulse/meter.hpp"
#include "pulse/window_blob.hpp"
#include "pulse/window_series.hpp"

namespace py = pybind11;

namespace pulse::python {
namespace {

// An array that owns the vector's memory; nothing is copied.
template <typename T>
py::array_t<T> to_array(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  std::vector<T>* memory = owned.get();
  const py::capsule owner(memory, [](void* vector) { delete static_cast<std::vector<T>*>(vector); });
  static_cast<void>(owned.release());  // the capsule deletes it from here on
  return py::array_t<T>(static_cast<py::ssize_t>(memory->size()), memory->data(), owner);
}

// A copy; the vector is gone when it has been made.
py::bytes to_bytes(std::vector<std::uint8_t>&& values) {
  const std::vector<std::uint8_t> owned = std::move(values);
  return {reinterpret_cast<const char*>(owned.data()), owned.size()};
}

// Interval with its vectors handed over to NumPy.
struct PythonInterval {
  std::int64_t begin_ns;
  std::int64_t end_ns;
  std::uint64_t window_ns;
  py::array flows, messages, controls, bursts, markers, events, histograms;
  py::bytes series;
  py::dict counters;
};

py::dict counters_of(const IntervalCounters& counters) {
  py::dict result;
  for (std::size_t i = 0; i < kParseOutcomes; ++i) {
    result[py::str("packets_" + std::string(kParseOutcomeNames[i]))] = counters.outcomes[i];
  }
  result["flows_created"] = counters.flows_created;
  result["flows_evicted"] = counters.flows_evicted;
  result["flows_aged_out"] = counters.flows_aged_out;
  result["flows_lost"] = counters.flows_lost;
  result["packets_lost"] = counters.packets_lost;
  result["records_lost"] = counters.records_lost;
  result["burst_gap_doublings"] = counters.burst_gap_doublings;
  result["marker_halvings"] = counters.marker_halvings;
  result["windows_averaged"] = counters.windows_averaged;
  result["windows_lost"] = counters.windows_lost;
  return result;
}

PythonInterval to_python(Interval&& interval) {
  return {interval.begin_ns,
          interval.end_ns,
          interval.window_ns,
          to_array(std::move(interval.flows)),
          to_array(std::move(interval.messages)),
          to_array(std::move(interval.controls)),
          to_array(std::move(interval.bursts)),
          to_array(std::move(interval.markers)),
          to_array(std::move(interval.events)),
          to_array(std::move(interval.histograms)),
          to_bytes(std::move(interval.series)),
          counters_of(interval.counters)};
}

using PacketArray = py::array_t<PacketRecord, py::array::c_style>;

// A meter that several threads may use, one after the other: its methods give up
// the GIL, so the GIL no longer keeps them apart.
class LockedMeter {
 public:
  explicit LockedMeter(const MeterConfig& config) : meter_(config) {}

  std::size_t update(const PacketBatch& batch, std::size_t start, std::optional<std::int64_t> until_ns) {
    if (start > batch.size()) {
      throw py::index_error("start is " + std::to_string(start) + " in a batch of " + std::to_string(batch.size()));
    }
    // Pure C++ that takes milliseconds; a batch never changes once Python has it.
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    return meter_.update_batch(batch, start, until_ns);
  }

  void update_records(const PacketArray& records) {
    if (records.ndim() != 1) throw py::value_error("records must be one-dimensional");
    const std::span<const PacketRecord> packets(records.data(), static_cast<std::size_t>(records.size()));
    // As above; `records` holds the memory, and whoever writes to an array that is in use asks for trouble anyway.
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    meter_.update(packets);
  }

  PythonInterval cut(std::int64_t begin_ns, std::int64_t end_ns, bool finish) {
    if (end_ns < begin_ns) {
      throw py::value_error("the interval ends at " + std::to_string(end_ns) + ", before its begin " +
                            std::to_string(begin_ns));
    }
    Interval interval;
    {
      // Sorting and encoding thousands of flows takes milliseconds and touches no Python object.
      const py::gil_scoped_release release;
      const std::lock_guard lock(mutex_);
      interval = finish ? meter_.finish(begin_ns, end_ns) : meter_.cut(begin_ns, end_ns);
    }
    return to_python(std::move(interval));
  }

  std::size_t memory_bytes() {
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    return meter_.memory_bytes();
  }

  std::size_t flow_count() {
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    return meter_.flow_count();
  }

 private:
  Meter meter_;
  std::mutex mutex_;
};

std::unique_ptr<LockedMeter> make_meter(std::uint64_t window_ns, std::int64_t burst_gap_ns, std::uint32_t max_flows,
                                        std::int64_t idle_ns, bool steered, std::uint32_t sample_shift,
                                        std::size_t window_budget_bytes, std::size_t max_records,
                                        std::size_t record_budget_bytes, std::size_t max_bursts,
                                        std::size_t max_data_markers) {
  return std::make_unique<LockedMeter>(MeterConfig{window_ns, burst_gap_ns, max_flows, idle_ns, steered, sample_shift,
                                                   window_budget_bytes, max_records, record_budget_bytes, max_bursts,
                                                   max_data_markers});
}

std::span<const std::uint8_t> bytes_of(const py::bytes& blob) {
  const auto text = static_cast<std::string_view>(blob);
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

py::array_t<WindowRecord> windows_of(const py::bytes& blob, std::int64_t begin_ns, std::uint64_t window_ns,
                                     std::size_t max_windows) {
  return to_array(decode_windows(bytes_of(blob), begin_ns, window_ns, max_windows));
}

py::array_t<PieceRecord> series_of(const py::bytes& section, std::uint64_t window_ns, std::size_t max_rows) {
  return to_array(decode_series(bytes_of(section), window_ns, max_rows));
}

std::uint64_t checked_lower_bound(unsigned cell) {
  if (cell >= kHistogramCells) {
    throw py::index_error("histogram cell " + std::to_string(cell) + " of " + std::to_string(kHistogramCells));
  }
  return histogram_lower_bound(cell);
}

void bind_interval(py::module_& module) {
  py::classh<PythonInterval>(module, "Interval", "What a meter saw between two cuts.")
      .def_readonly("begin_ns", &PythonInterval::begin_ns)
      .def_readonly("end_ns", &PythonInterval::end_ns)
      .def_readonly("window_ns", &PythonInterval::window_ns)
      .def_readonly("flows", &PythonInterval::flows)
      .def_readonly("messages", &PythonInterval::messages)
      .def_readonly("controls", &PythonInterval::controls)
      .def_readonly("bursts", &PythonInterval::bursts)
      .def_readonly("markers", &PythonInterval::markers)
      .def_readonly("events", &PythonInterval::events)
      .def_readonly("histograms", &PythonInterval::histograms)
      .def_readonly("series", &PythonInterval::series)
      .def_readonly("counters", &PythonInterval::counters);
}

}  // namespace

void bind_meter(py::module_& module) {
  bind_interval(module);
  const MeterConfig defaults;
  py::classh<LockedMeter>(module, "Meter", "Measures the packets of one NIC.")
      .def(py::init(&make_meter), py::kw_only(), py::arg("window_ns") = defaults.window_ns,
           py::arg("burst_gap_ns") = defaults.burst_gap_ns, py::arg("max_flows") = defaults.max_flows,
           py::arg("idle_ns") = defaults.idle_ns, py::arg("steered") = defaults.steered,
           py::arg("sample_shift") = defaults.sample_shift,
           py::arg("window_budget_bytes") = defaults.window_budget_bytes, py::arg("max_records") = defaults.max_records,
           py::arg("record_budget_bytes") = defaults.record_budget_bytes, py::arg("max_bursts") = defaults.max_bursts,
           py::arg("max_data_markers") = defaults.max_data_markers)
      .def("update", &LockedMeter::update, py::arg("batch"), py::arg("start") = 0, py::arg("until_ns") = py::none(),
           "Take packets up to the first at or after `until_ns`; return its index.")
      .def("update_records", &LockedMeter::update_records, py::arg("records").noconvert(), "Take PACKET records.")
      .def(
          "cut",
          [](LockedMeter& meter, std::int64_t begin_ns, std::int64_t end_ns) {
            return meter.cut(begin_ns, end_ns, false);
          },
          py::arg("begin_ns"), py::arg("end_ns"), "End the interval and return it.")
      .def(
          "finish",
          [](LockedMeter& meter, std::int64_t begin_ns, std::int64_t end_ns) {
            return meter.cut(begin_ns, end_ns, true);
          },
          py::arg("begin_ns"), py::arg("end_ns"), "Like cut(), with the messages that have not ended.")
      .def_property_readonly("flow_count", &LockedMeter::flow_count)
      .def_property_readonly("memory_bytes", &LockedMeter::memory_bytes);
  module.def("decode_windows", &windows_of, py::arg("blob"), py::arg("begin_ns"), py::arg("window_ns"),
             py::arg("max_windows") = std::size_t{1} << 24, "Return the WINDOW records of a windows section.");
  module.def("decode_series", &series_of, py::arg("section"), py::arg("window_ns"),
             py::arg("max_rows") = std::size_t{1} << 24, "Return the PIECE records of a series section.");
  module.def("data_marker_hash", &data_marker_hash, py::arg("psn"), py::arg("dest_qpn"));
  module.def("ack_marker_hash", &ack_marker_hash, py::arg("psn"), py::arg("msn"));
  module.def("histogram_cell", &histogram_cell, py::arg("value"));
  module.def("histogram_lower_bound", &checked_lower_bound, py::arg("cell"));
}

}  // namespace pulse::python
