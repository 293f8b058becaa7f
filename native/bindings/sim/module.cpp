// SPDX-License-Identifier: Apache-2.0
//
// The compiled module pulse_native._sim: apart from _core, so that a DPU never loads it.
#include <pybind11/pybind11.h>

#include "bindings.hpp"

PYBIND11_MODULE(_sim, module) {
  module.doc() = "Event simulation of training traffic";
  pybind11::module_::import("pulse_native._core");  // defines PacketBatch
  pulse::python::bind_plan(module);
  pulse::python::bind_simulation(module);
  pulse::python::bind_tap(module);
}
