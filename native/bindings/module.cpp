// SPDX-License-Identifier: Apache-2.0
//
// The compiled module pulse_native._core.
#include <pybind11/pybind11.h>

#include "bindings.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Capture reader, RoCEv2 parser and flow meter";
  module.attr("__version__") = PULSE_VERSION;
  pulse::python::bind_records(module);
  pulse::python::bind_reader(module);
  pulse::python::bind_meter(module);
  pulse::python::bind_replay(module);
}
