// SPDX-License-Identifier: Apache-2.0
//
// The compiled module pulse_native._bench: traffic and loops of `pulse bench measure`, so that no figure has
// Python's time in it.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "packet_path.hpp"
#include "pulse/packet_batch.hpp"
#include "pulse/window_store.hpp"
#include "traffic.hpp"

namespace py = pybind11;

namespace pulse::python {
namespace {

template <typename T>
void set(const py::dict& values, const char* name, T& field) {
  if (values.contains(name)) field = values[name].cast<T>();
}

bench::TrafficConfig traffic_of(const py::dict& values) {
  bench::TrafficConfig config;
  set(values, "flows", config.flows);
  set(values, "mtu", config.mtu);
  set(values, "train_packets", config.train_packets);
  set(values, "message_bytes", config.message_bytes);
  set(values, "gigabits", config.gigabits);
  set(values, "steered", config.steered);
  set(values, "snap", config.snap);
  set(values, "seed", config.seed);
  return config;
}

py::dict measure(const py::dict& traffic, std::uint64_t window_ns, std::size_t batch_packets, unsigned repetitions) {
  const bench::PathRequest request{traffic_of(traffic), window_ns, batch_packets, repetitions};
  bench::PathResult result;
  {
    const py::gil_scoped_release release;  // seconds, without a Python object
    result = bench::measure_path(request);
  }
  py::dict figures;
  figures["floor_ns"] = result.floor_ns;
  figures["parse_ns"] = result.parse_ns;
  figures["meter_ns"] = result.meter_ns;
  figures["cut_ns"] = result.cut_ns;
  figures["median_ratio"] = result.median_ratio;
  figures["packets"] = result.packets;
  return figures;
}

PacketBatch next_batch(bench::Traffic& traffic, std::size_t packets) {
  PacketBatch batch;
  std::vector<std::uint32_t> flows;
  const py::gil_scoped_release release;  // thousands of headers, into a batch that nobody else can see yet
  traffic.fill(batch, packets, flows);
  return batch;
}

// Windows as a meter would append them, through a store of the given budget: entries and their bytes.
py::tuple keep_windows(const py::array_t<std::uint32_t>& slots, const py::array_t<std::int64_t>& indices,
                       const py::array_t<std::uint64_t>& bytes, const py::array_t<std::uint32_t>& packets,
                       std::size_t flows, std::size_t budget_bytes) {
  const auto slot = slots.unchecked<1>();
  const auto index = indices.unchecked<1>();
  const auto byte = bytes.unchecked<1>();
  const auto packet = packets.unchecked<1>();
  WindowStore store(flows, budget_bytes);
  for (py::ssize_t i = 0; i < slot.shape(0); ++i) {
    if (slot(i) >= flows || packet(i) == 0) throw py::value_error("a window without packets, or of no flow");
    store.append(slot(i), index(i), byte(i), packet(i));
  }
  std::vector<PieceRecord> rows;
  std::vector<Window> windows;
  std::size_t size = 0;
  for (std::size_t flow = 0; flow < flows; ++flow) {
    std::vector<std::uint8_t> entries;
    windows.clear();
    store.take_entries(flow, entries);
    size += entries.size();
    decode_entries(entries, windows.max_size(), windows);
    for (const Window& w : windows) {
      rows.push_back({w.index, w.bytes, static_cast<std::uint32_t>(flow), w.packets, w.length, 0});
    }
  }
  return py::make_tuple(py::array_t<PieceRecord>(static_cast<py::ssize_t>(rows.size()), rows.data()), size);
}

}  // namespace
}  // namespace pulse::python

PYBIND11_MODULE(_bench, module) {
  using namespace pulse::python;
  module.doc() = "Traffic and loops of `pulse bench measure`";
  py::module_::import("pulse_native._core");  // defines PacketBatch
  py::classh<pulse::bench::Traffic>(module, "Traffic", "RDMA WRITE messages at line rate, both ways.")
      .def(py::init([](const py::dict& config) { return std::make_unique<pulse::bench::Traffic>(traffic_of(config)); }),
           py::arg("config"))
      .def("next_batch", &next_batch, py::arg("packets"), "Return the next packets.")
      .def_property_readonly("now_ns", &pulse::bench::Traffic::now_ns);
  module.def("keep_windows", &keep_windows, py::arg("slots"), py::arg("indices"), py::arg("sizes"), py::arg("packets"),
             py::arg("flows"), py::arg("budget_bytes"), "Return PIECE records (start in windows) and their bytes.");
  module.def("measure_path", &measure, py::arg("traffic"), py::arg("window_ns"), py::arg("batch_packets"),
             py::arg("repetitions"), "Return nanoseconds per packet of floor, parser and meter on the same packets.");
}
