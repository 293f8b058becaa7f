// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include "bindings.hpp"

namespace pulse::python {

void bind_reader(pybind11::module_&) {}

}  // namespace pulse::python
