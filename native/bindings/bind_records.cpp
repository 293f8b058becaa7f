// SPDX-License-Identifier: Apache-2.0
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bindings.hpp"
#include "pulse/records.hpp"

namespace py = pybind11;

namespace pulse::python {
namespace {

void register_dtypes() {
  PYBIND11_NUMPY_DTYPE(FlowRecord, first_ns, last_ns, packets, wire_bytes, data_bytes, repeat_bytes, src, dst, flow,
                       dest_qpn, reverse_flow, reverse_confidence, data_packets, repeat_packets, gap_psns, late_packets,
                       messages, controls, read_requests, acks, duplicate_acks, nak_sequence, nak_other, rnr, cnp,
                       ecn_ce, lives, psn_first, psn_next, psn_acked, udp_sport, family, transport, seen);
  PYBIND11_NUMPY_DTYPE(MessageRecord, start_ns, end_ns, bytes, flow, psn, packets, immediate, opcode, flags, life,
                       longest_gap_ns);
  PYBIND11_NUMPY_DTYPE(ControlRecord, ns, flow, psn, bytes, immediate, opcode, flags, life, reserved);
  PYBIND11_NUMPY_DTYPE(BurstRecord, first_ns, last_ns, bytes, flow, packets, longest_gap_ns);
  PYBIND11_NUMPY_DTYPE(MarkerRecord, ns, flow, psn, msn, kind, reserved, life);
  PYBIND11_NUMPY_DTYPE(EventRecord, start_ns, end_ns, flow, psn, count, kind, reserved);
  PYBIND11_NUMPY_DTYPE(WindowRecord, start_ns, flow, bytes, packets, reserved);
  PYBIND11_NUMPY_DTYPE(PieceRecord, start_ns, bytes, flow, packets, windows, reserved);
  PYBIND11_NUMPY_DTYPE(HistogramRecord, flow, count, kind, cell, reserved);
  PYBIND11_NUMPY_DTYPE(PacketRecord, ns, src, dst, wire_bytes, payload_bytes, dest_qpn, psn, dma_bytes, immediate, msn,
                       src_qpn, udp_sport, opcode, syndrome, ecn, ack_req, family, outcome);
}

py::dict record_dtypes() {
  py::dict dtypes;
  dtypes["FLOW"] = py::dtype::of<FlowRecord>();
  dtypes["MESSAGE"] = py::dtype::of<MessageRecord>();
  dtypes["CONTROL"] = py::dtype::of<ControlRecord>();
  dtypes["BURST"] = py::dtype::of<BurstRecord>();
  dtypes["MARKER"] = py::dtype::of<MarkerRecord>();
  dtypes["EVENT"] = py::dtype::of<EventRecord>();
  dtypes["WINDOW"] = py::dtype::of<WindowRecord>();
  dtypes["PIECE"] = py::dtype::of<PieceRecord>();
  dtypes["HISTOGRAM"] = py::dtype::of<HistogramRecord>();
  dtypes["PACKET"] = py::dtype::of<PacketRecord>();
  return dtypes;
}

}  // namespace

void bind_records(py::module_& module) {
  register_dtypes();
  module.def("record_dtypes", &record_dtypes,
             "Return the NumPy dtype of every record, by its name in dpu_app.wire.records.");
}

}  // namespace pulse::python
