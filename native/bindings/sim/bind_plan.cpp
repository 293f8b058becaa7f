// SPDX-License-Identifier: Apache-2.0
#include <pybind11/native_enum.h>

#include "bindings.hpp"
#include "sim/library.hpp"
#include "sim/plan.hpp"

namespace py = pybind11;

namespace pulse::python {

using namespace sim;

namespace {

void register_devices() {
  PYBIND11_NUMPY_DTYPE(PortPlan, ps_per_byte, latency_ps, jitter_ps);
  PYBIND11_NUMPY_DTYPE(NicPlan, ps_per_byte, latency_ps, jitter_ps, access_port);
  PYBIND11_NUMPY_DTYPE(NicAddress, mac, ipv6, ipv4);
  PYBIND11_NUMPY_DTYPE(EndAddress, nic, peer_nic, dest_qpn, start_psn, peer_start_psn, udp_source_port);
  PYBIND11_NUMPY_DTYPE(Path, ports, hops);
}

void register_settings() {
  PYBIND11_NUMPY_DTYPE(NetworkPlan, header_bytes, mark_from_bytes, mark_all_bytes, mark_probability, pause_bytes,
                       resume_bytes, queue_bytes, quantum_packets, train_packets, fetch_jitter_ps);
  PYBIND11_NUMPY_DTYPE(TransportPlan, mtu, ack_every, coalesce_acks, ack_latency_ps, ack_jitter_ps, timeout_ps,
                       retry_limit, cnp_interval_ps, alpha_gain, alpha_timer_ps, increase_timer_ps, increase_bytes,
                       fast_recovery_rounds, additive_share, hyper_share, lowest_share);
  PYBIND11_NUMPY_DTYPE(LibraryPlan, depth, empty_immediate, split_slots, credit_verb, early_credits, credit_bytes,
                       host_ps, host_jitter_ps, step_ps, reduce_ps_per_byte, couple_ps);
}

void register_programs() {
  PYBIND11_NUMPY_DTYPE(LanePlan, sender, receiver, first_connection, connections, slot_bytes, address, remote_key);
  PYBIND11_NUMPY_DTYPE(StepPlan, first_receive, receives, sends, bytes);
  PYBIND11_NUMPY_DTYPE(ThreadPlan, first_step, steps);
  PYBIND11_NUMPY_DTYPE(TemplatePlan, first_thread, threads);
  PYBIND11_NUMPY_DTYPE(OperationPlan, form, tag, stream);
  PYBIND11_NUMPY_DTYPE(Command, value, kind);
  PYBIND11_NUMPY_DTYPE(RankPlan, nic, begin_ps, first_command, commands);
  PYBIND11_NUMPY_DTYPE(ActionPlan, kind, subject, value, extra);
  PYBIND11_NUMPY_DTYPE(TriggerPlan, rank, step, operation, delay_ps, first_action, actions, onset);
  PYBIND11_NUMPY_DTYPE(InjectionPlan, end, verb, bytes, messages, depth, begin_ps);
}

void register_records() {
  PYBIND11_NUMPY_DTYPE(SlotRecord, lane, bytes, tag, parts_missing, parts_unacknowledged, here, staged_ps, posted_ps,
                       delivered_ps, consumed_ps, acknowledged_ps);
  PYBIND11_NUMPY_DTYPE(CreditRecord, lane, number, posted_ps, arrived_ps);
  PYBIND11_NUMPY_DTYPE(OperationRecord, rank, step, operation, reserved, enter_ps, end_ps);
  PYBIND11_NUMPY_DTYPE(StepRecord, rank, step, begin_ps, first_operation_ps, last_operation_ps, end_ps);
}

py::dict plan_dtypes() {
  py::dict all;
  all["network"] = py::dtype::of<NetworkPlan>();
  all["transport"] = py::dtype::of<TransportPlan>();
  all["library"] = py::dtype::of<LibraryPlan>();
  all["ports"] = py::dtype::of<PortPlan>();
  all["nics"] = py::dtype::of<NicPlan>();
  all["addresses"] = py::dtype::of<NicAddress>();
  all["ends"] = py::dtype::of<EndAddress>();
  all["paths"] = py::dtype::of<Path>();
  all["lanes"] = py::dtype::of<LanePlan>();
  all["step_lanes"] = py::dtype::of<std::uint32_t>();
  all["steps"] = py::dtype::of<StepPlan>();
  all["threads"] = py::dtype::of<ThreadPlan>();
  all["templates"] = py::dtype::of<TemplatePlan>();
  all["operations"] = py::dtype::of<OperationPlan>();
  all["commands"] = py::dtype::of<Command>();
  all["meetings"] = py::dtype::of<std::uint32_t>();
  all["ranks"] = py::dtype::of<RankPlan>();
  all["actions"] = py::dtype::of<ActionPlan>();
  all["triggers"] = py::dtype::of<TriggerPlan>();
  all["injections"] = py::dtype::of<InjectionPlan>();
  return all;
}

void bind_enumerations(py::module_& module) {
  py::native_enum<CommandKind>(module, "CommandKind", "enum.IntEnum")
      .value("BEGIN_STEP", CommandKind::begin_step)
      .value("END_STEP", CommandKind::end_step)
      .value("COMPUTE", CommandKind::compute)
      .value("ANNOUNCE", CommandKind::announce)
      .value("START", CommandKind::start)
      .value("WAIT", CommandKind::wait)
      .value("WAIT_FOR", CommandKind::wait_for)
      .value("COUPLE", CommandKind::couple)
      .finalize();
  py::native_enum<CreditVerb>(module, "CreditVerb", "enum.IntEnum")
      .value("NONE", CreditVerb::none)
      .value("WRITE", CreditVerb::write)
      .value("SEND", CreditVerb::send)
      .value("FETCH_ADD", CreditVerb::fetch_add)
      .finalize();
  py::native_enum<Verb>(module, "Verb", "enum.IntEnum")
      .value("WRITE", Verb::write)
      .value("WRITE_IMM", Verb::write_imm)
      .value("SEND", Verb::send)
      .value("FETCH_ADD", Verb::fetch_add)
      .finalize();
  py::native_enum<ActionKind>(module, "ActionKind", "enum.IntEnum")
      .value("ENGINE_RATE", ActionKind::engine_rate)
      .value("WIRE_RATE", ActionKind::wire_rate)
      .value("DRAIN_RATE", ActionKind::drain_rate)
      .value("PORT_RATE", ActionKind::port_rate)
      .value("LOSS_BEFORE_TAP", ActionKind::loss_before_tap)
      .value("LOSS_ON_WIRE", ActionKind::loss_on_wire)
      .value("PORT_LOSS", ActionKind::port_loss)
      .value("LINK_DOWN", ActionKind::link_down)
      .value("LINK_UP", ActionKind::link_up)
      .value("NIC_DEAD", ActionKind::nic_dead)
      .value("RANK_STOP", ActionKind::rank_stop)
      .value("RANK_CRASH", ActionKind::rank_crash)
      .value("HOST_HOLD", ActionKind::host_hold)
      .value("PIN_PATH", ActionKind::pin_path)
      .value("FOREIGN_LOAD", ActionKind::foreign_load)
      .finalize();
}

}  // namespace

void bind_plan(py::module_& module) {
  register_devices();
  register_settings();
  register_programs();
  register_records();
  bind_enumerations(module);
  module.attr("NOBODY") = kNobody;
  module.def("plan_dtypes", &plan_dtypes, "Return the NumPy dtype of each table of a plan, by name.");
}

}  // namespace pulse::python
