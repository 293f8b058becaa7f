// SPDX-License-Identifier: Apache-2.0
//
// One function per bind_*.cpp; module.cpp calls them in order.
#pragma once

#include <pybind11/pybind11.h>

namespace pulse::python {

// Registers the NumPy dtype of every record; the other bindings return arrays of them.
void bind_records(pybind11::module_& module);

// CaptureReader, PacketBatch and icrc().
void bind_reader(pybind11::module_& module);

// Meter, its intervals, and the decoders of what they hold.
void bind_meter(pybind11::module_& module);

// replay() of a job's messages with some delays shortened.
void bind_replay(pybind11::module_& module);

}  // namespace pulse::python
