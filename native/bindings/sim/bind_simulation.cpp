// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "sim/engine.hpp"

namespace py = pybind11;

namespace pulse::python {

using namespace sim;

namespace {

constexpr Picoseconds kPsPerNs = 1'000;

template <typename T>
T one_row(const py::dict& tables, const char* name) {
  const std::vector<T> rows = rows_of<T>(tables, name);
  if (rows.size() != 1) throw py::value_error(std::string("table ") + name + " must have one row");
  return rows.front();
}

Plan plan_of(const py::dict& tables, std::uint64_t seed) {
  Plan plan;
  plan.seed = seed;
  plan.network = one_row<NetworkPlan>(tables, "network");
  plan.transport = one_row<TransportPlan>(tables, "transport");
  plan.library = one_row<LibraryPlan>(tables, "library");
  plan.ports = rows_of<PortPlan>(tables, "ports");
  plan.nics = rows_of<NicPlan>(tables, "nics");
  plan.ends = rows_of<EndAddress>(tables, "ends");
  plan.paths = rows_of<Path>(tables, "paths");
  plan.lanes = rows_of<LanePlan>(tables, "lanes");
  plan.step_lanes = rows_of<std::uint32_t>(tables, "step_lanes");
  plan.steps = rows_of<StepPlan>(tables, "steps");
  plan.threads = rows_of<ThreadPlan>(tables, "threads");
  plan.templates = rows_of<TemplatePlan>(tables, "templates");
  plan.operations = rows_of<OperationPlan>(tables, "operations");
  plan.commands = rows_of<Command>(tables, "commands");
  plan.meetings = rows_of<std::uint32_t>(tables, "meetings");
  plan.ranks = rows_of<RankPlan>(tables, "ranks");
  plan.actions = rows_of<ActionPlan>(tables, "actions");
  plan.triggers = rows_of<TriggerPlan>(tables, "triggers");
  plan.injections = rows_of<InjectionPlan>(tables, "injections");
  return plan;
}

constexpr std::int64_t kLatestNs = std::int64_t{1} << 52;  // 52 days; in picoseconds still far from overflow

// An engine that one thread at a time may use: advance() gives up the GIL, which then keeps nobody apart.
class Guarded {
 public:
  explicit Guarded(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  template <typename Use>
  auto with(Use use) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) throw std::runtime_error("another thread is using this simulation");
    return use(*engine_);
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
};

Picoseconds in_ps(std::int64_t ns) { return std::min(ns, kLatestNs) * kPsPerNs; }

std::unique_ptr<Guarded> make_engine(const py::dict& tables, std::uint64_t seed, std::int64_t limit_ns,
                                     std::int64_t tail_ns, std::optional<std::int64_t> watch_ns, bool tapped,
                                     bool sent_middles, bool received_middles) {
  const EndRule rule{in_ps(limit_ns), in_ps(tail_ns), watch_ns ? in_ps(*watch_ns) : -1};
  auto engine = std::make_unique<Engine>(plan_of(tables, seed), rule);
  engine->network().set_tapped(tapped);
  engine->network().note_middles(sent_middles, received_middles);
  return std::make_unique<Guarded>(std::move(engine));
}

bool advance(Engine& engine, std::int64_t until_ns, std::uint64_t max_events) {
  // Millions of events over memory of this engine alone; the taps of an earlier stretch run meanwhile.
  const py::gil_scoped_release release;
  return engine.advance(in_ps(until_ns), max_events);
}

std::unique_ptr<Sightings> take_sightings(Engine& engine) {
  auto taken = std::make_unique<Sightings>();
  const auto nics = static_cast<std::uint32_t>(engine.plan().nics.size());
  taken->by_nic.resize(nics);
  for (std::uint32_t nic = 0; nic < nics; ++nic) engine.network().take_sightings(nic, taken->by_nic[nic]);
  taken->complete_ps = engine.network().sighted_until();
  return taken;
}

py::dict counters(Engine& engine) {
  py::dict all;
  all["events"] = engine.events();
  all["packets_lost"] = engine.network().dropped();
  all["pauses"] = engine.network().pauses();
  all["marks"] = engine.network().marks();
  all["retransmitted"] = engine.transport().retransmitted();
  all["notifications"] = engine.transport().notifications();
  return all;
}

std::optional<std::int64_t> onset_ns(const Engine& engine) {
  const Picoseconds onset = engine.library().onset_ps();
  return onset == kNever ? std::nullopt : std::optional(onset / kPsPerNs);
}

template <typename T>
auto records(const std::vector<T>& (Library::*get)() const noexcept) {
  return [get](Guarded& self) {
    return self.with([get](const Engine& engine) { return copied<T>((engine.library().*get)()); });
  };
}

// A property or method that a function of the engine gives.
template <typename Function>
auto of_engine(Function function) {
  return [function](Guarded& self) { return self.with(function); };
}

double rate_share(Engine& engine, std::uint32_t end) {
  if (end >= engine.plan().ends.size()) throw py::index_error("no connection end " + std::to_string(end));
  return engine.transport().rate_share(end);
}

}  // namespace

void bind_simulation(py::module_& module) {
  py::classh<Sightings>(module, "Sightings", "What all taps saw in one stretch of time.");
  py::classh<Guarded>(module, "Simulation", "One simulation, from a plan that is complete before it begins.")
      .def(py::init(&make_engine), py::arg("tables"), py::kw_only(), py::arg("seed"), py::arg("limit_ns"),
           py::arg("tail_ns"), py::arg("watch_ns") = py::none(), py::arg("tapped") = true,
           py::arg("sent_middles") = true, py::arg("received_middles") = true)
      .def(
          "advance",
          [](Guarded& self, std::int64_t until_ns, std::uint64_t max_events) {
            return self.with([&](Engine& engine) { return advance(engine, until_ns, max_events); });
          },
          py::arg("until_ns"), py::arg("max_events") = std::uint64_t{1} << 62,
          "Run up to a time or for so many events; False when the simulation is over.")
      .def("take_sightings", of_engine(&take_sightings), "Return what the taps saw since the last call.")
      .def_property_readonly("now_ns", of_engine([](const Engine& engine) { return engine.now() / kPsPerNs; }))
      .def_property_readonly("finished",
                             of_engine([](const Engine& engine) { return engine.library().all_finished(); }))
      .def_property_readonly("onset_ns", of_engine(&onset_ns))
      .def_property_readonly("counters", of_engine(&counters))
      .def(
          "rate_share",
          [](Guarded& self, std::uint32_t end) {
            return self.with([end](Engine& engine) { return rate_share(engine, end); });
          },
          py::arg("end"), "Return the present rate of a connection end as a share of its NIC's.")
      .def_property_readonly(
          "slots", of_engine([](const Engine& engine) { return copied<SlotRecord>(engine.library().slot_records()); }))
      .def_property_readonly("credits", records(&Library::credit_records))
      .def_property_readonly("operations", records(&Library::operation_records))
      .def_property_readonly("steps", records(&Library::step_records))
      .def_property_readonly("trigger_times_ps", records(&Library::trigger_times))
      .def_property_readonly("failed_ends", records(&Library::failed_ends));
}

}  // namespace pulse::python
