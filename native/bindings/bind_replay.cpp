// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <stdexcept>

#include "bindings.hpp"
#include "pulse/replay.hpp"

namespace py = pybind11;

namespace pulse::python {
namespace {

template <typename Row>
std::span<const Row> rows_of(const py::array_t<Row, py::array::c_style>& array, const char* name) {
  if (array.ndim() != 1) {
    throw std::invalid_argument(std::string(name) + " must have one dimension");
  }
  return {array.data(), static_cast<std::size_t>(array.size())};
}

py::array_t<std::int64_t> replayed_arrivals(const py::array_t<ReplayMessage, py::array::c_style>& messages,
                                            const py::array_t<ReplayCut, py::array::c_style>& cuts,
                                            const py::array_t<std::int64_t, py::array::c_style>& order,
                                            std::size_t hosts) {
  const auto message_rows = rows_of(messages, "messages");
  const auto cut_rows = rows_of(cuts, "cuts");
  const auto order_rows = rows_of(order, "order");
  py::array_t<std::int64_t> arrivals(messages.size());
  const std::span<std::int64_t> out(arrivals.mutable_data(), message_rows.size());
  bool done = false;
  {
    // The arrays are the caller's and nobody writes to them meanwhile; a large job takes milliseconds.
    const py::gil_scoped_release release;
    done = replay(message_rows, cut_rows, order_rows, hosts, out);
  }
  if (!done) {
    throw std::invalid_argument("replay: one cut per message, order a permutation of the rows, hosts from 0");
  }
  return arrivals;
}

py::dict replay_dtypes() {
  py::dict dtypes;
  dtypes["MESSAGE"] = py::dtype::of<ReplayMessage>();
  dtypes["CUT"] = py::dtype::of<ReplayCut>();
  return dtypes;
}

}  // namespace

void bind_replay(py::module_& module) {
  PYBIND11_NUMPY_DTYPE(ReplayMessage, start, input_row, before_row, grant_row, compute_row, posted, input_lag,
                       before_lag, compute_lag, credit_way, sending, transfer, grant_is_send, sender, receiver);
  PYBIND11_NUMPY_DTYPE(ReplayCut, host, credit, transfer);
  module.def("replay_dtypes", &replay_dtypes, "Return the NumPy dtypes MESSAGE and CUT of replay().");
  module.def("replay", &replayed_arrivals, py::arg("messages"), py::arg("cuts"), py::arg("order"), py::arg("hosts"),
             "Return when each message would have arrived with the cuts.");
}

}  // namespace pulse::python
