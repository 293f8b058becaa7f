// SPDX-License-Identifier: Apache-2.0
//
// The compiled module pulse_native._live: capture from Linux network interfaces.
#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "live/live_capture.hpp"
#include "live/packet_filter.hpp"
#include "pulse/packet_batch.hpp"

namespace py = pybind11;

namespace pulse::live {
namespace {

Selection selection_of(bool steered) { return steered ? Selection::steered : Selection::all; }

// A capture that several threads may use, one after the other; close() ends the sockets without waiting for the
// garbage collector.
class LockedCapture {
 public:
  explicit LockedCapture(LiveConfig config) : capture_(std::make_unique<LiveCapture>(std::move(config))) {}

  PacketBatch read(int timeout_ms, std::size_t max_packets) {
    PacketBatch batch;
    // Waits for packets and copies up to a hundred thousand of them, without any Python object.
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    opened().read(std::chrono::milliseconds(timeout_ms), max_packets, batch);
    return batch;
  }

  bool is_attached() {
    // read() may hold the mutex for as long as it waits.
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    return opened().is_attached();
  }

  bool has_hardware_stamps() {
    const py::gil_scoped_release release;  // as above
    const std::lock_guard lock(mutex_);
    return opened().has_hardware_stamps();
  }

  py::dict counts() {
    LiveCounts counts;
    {
      const py::gil_scoped_release release;  // as above
      const std::lock_guard lock(mutex_);
      counts = opened().counts();
    }
    py::dict result;
    result["packets"] = counts.packets;
    result["outgoing"] = counts.outgoing;
    result["dropped"] = counts.dropped;
    result["freezes"] = counts.freezes;
    result["unstamped"] = counts.unstamped;
    result["times_down"] = counts.times_down;
    return result;
  }

  void close() {
    const py::gil_scoped_release release;  // as above
    const std::lock_guard lock(mutex_);
    capture_.reset();
  }

 private:
  LiveCapture& opened() {
    if (capture_ == nullptr) throw std::logic_error("the capture is closed");
    return *capture_;
  }

  std::unique_ptr<LiveCapture> capture_;
  std::mutex mutex_;
};

std::unique_ptr<LockedCapture> open_capture(std::string interface, bool steered, std::uint32_t rings,
                                            std::uint32_t block_bytes, std::uint32_t blocks, std::uint32_t retire_ms,
                                            bool promiscuous, bool outgoing) {
  return std::make_unique<LockedCapture>(LiveConfig{std::move(interface), selection_of(steered), rings,
                                                    RingShape{block_bytes, blocks, retire_ms}, promiscuous, outgoing});
}

py::bytes filter_program(bool steered) {
  const auto program = make_filter(selection_of(steered));
  return {reinterpret_cast<const char*>(program.data()), program.size() * sizeof(sock_filter)};
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const CaptureError& failure) {
    // Made here and not by Python later: only then it has its true class, PermissionError and the like.
    const py::object made = py::reinterpret_borrow<py::object>(PyExc_OSError)(failure.error(), failure.what());
    PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
  } catch (const std::logic_error& failure) {
    PyErr_SetString(PyExc_ValueError, failure.what());
  }
}

}  // namespace
}  // namespace pulse::live

PYBIND11_MODULE(_live, module) {
  using namespace pulse::live;
  module.doc() = "Capture from Linux network interfaces";
  py::module_::import("pulse_native._core");  // defines PacketBatch
  py::register_local_exception_translator(&translate);
  const LiveConfig defaults;
  py::classh<LockedCapture>(module, "LiveCapture", "Packets of one interface while they pass.")
      .def(py::init(&open_capture), py::arg("interface"), py::kw_only(), py::arg("steered") = false,
           py::arg("rings") = defaults.rings, py::arg("block_bytes") = defaults.ring.block_bytes,
           py::arg("blocks") = defaults.ring.blocks, py::arg("retire_ms") = defaults.ring.retire_ms,
           py::arg("promiscuous") = defaults.promiscuous, py::arg("outgoing") = defaults.outgoing)
      .def("read", &LockedCapture::read, py::arg("timeout_ms"), py::arg("max_packets") = 1U << 15U,
           "Return packets in the order of their stamps; wait while there is none.")
      .def("is_attached", &LockedCapture::is_attached, "Tell whether the interface that was opened is still there.")
      .def("counts", &LockedCapture::counts, "Return what was taken and lost so far.")
      .def("close", &LockedCapture::close, "Give the interface and the rings back.")
      .def_property_readonly("hardware_stamps", &LockedCapture::has_hardware_stamps);
  module.def("filter_program", &filter_program, py::kw_only(), py::arg("steered"),
             "Return the classic BPF program that the kernel runs on every packet.");
}
