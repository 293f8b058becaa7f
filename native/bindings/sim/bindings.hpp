// SPDX-License-Identifier: Apache-2.0
//
// One function per bind_*.cpp; module.cpp calls them in order.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/packet_run.hpp"

namespace pulse::python {

// Registers the NumPy dtypes of the plan and of what a simulation records, and the enumerations in them.
void bind_plan(pybind11::module_& module);

// Simulation and Sightings.
void bind_simulation(pybind11::module_& module);

// Tap.
void bind_tap(pybind11::module_& module);

// What all taps saw up to some time, on its way from the simulation to the taps.
struct Sightings {
  std::vector<std::vector<sim::Sighting>> by_nic;
  sim::Picoseconds complete_ps = 0;
};

// Table `name`. Throws a ValueError that names it when rows have another dtype.
template <typename T>
pybind11::array table_of(const pybind11::dict& tables, const char* name) {
  if (!tables.contains(name)) throw pybind11::value_error(std::string("the plan has no table ") + name);
  auto array = pybind11::array::ensure(tables[name], pybind11::array::c_style);
  if (!array || array.ndim() != 1 || !pybind11::dtype::of<T>().equal(array.dtype())) {
    throw pybind11::value_error(std::string("table ") + name + " has not the dtype that plan_dtypes() gives");
  }
  return array;
}

template <typename T>
std::span<const T> rows_in(const pybind11::array& table) {
  return {static_cast<const T*>(table.data()), static_cast<std::size_t>(table.size())};
}

// The rows of table `name`, copied.
template <typename T>
std::vector<T> rows_of(const pybind11::dict& tables, const char* name) {
  const pybind11::array table = table_of<T>(tables, name);
  const std::span<const T> rows = rows_in<T>(table);
  return {rows.begin(), rows.end()};
}

template <typename T>
pybind11::array_t<T> copied(std::span<const T> rows) {
  return pybind11::array_t<T>(static_cast<pybind11::ssize_t>(rows.size()), rows.data());
}

}  // namespace pulse::python
