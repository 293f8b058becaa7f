# SPDX-License-Identifier: Apache-2.0
"""What the controller knows as Prometheus metrics; labels are NIC, machine and job, all of them bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from host_ctl.api.findings_metrics import of_findings, of_hooks
from host_ctl.api.snapshot import NicSnapshot, Snapshot
from host_ctl.incidents.desk import DeskStatus
from host_ctl.live.supervisor import AnalysisStatus

_LABELS = ("machine", "nic")
_NIC_COUNTS = {
    "connections": "Connections of the NIC.",
    "frames": "Frames that came, repeats too.",
    "bytes": "Bytes of these frames.",
    "duplicates": "Frames that were known.",
    "late": "Frames that came after one with a higher sequence.",
    "reordered": "Frames out of order within a connection.",
    "restarts": "Times that the sending process was a new one.",
    "refused": "Frames that were refused.",
}
_INGEST_COUNTS = {
    "accepted": "Connections that were let in.",
    "refused_full": "Connections closed because there were too many.",
    "failed_handshakes": "TLS handshakes that failed.",
    "refused_identity": "Connections and frames of somebody else than the certificate names.",
    "refused_schema": "Connections and frames of another schema.",
    "refused_frame": "Frames that were damaged or too large.",
    "refused_busy": "Connections ended because the disk takes nothing.",
    "protocol_errors": "Connections that did not keep to the protocol.",
    "too_slow": "Connections ended because they were too slow.",
    "silent": "Connections ended because nothing came.",
    "replaced": "Connections that gave way to a newer one of the same NIC.",
}
_HISTORY_GAUGES = {
    "segments": "Files of the history.",
    "bytes": "Bytes of the history.",
    "frames": "Frames of the history.",
}
_HISTORY_COUNTS = {
    "dropped_segments": "Files dropped because the history is full.",
    "dropped_frames": "Frames dropped because the history is full.",
    "damaged_bytes": "Bytes found damaged at the start.",
    "damaged_segments": "Files found damaged at the start.",
    "torn_bytes": "Unfinished bytes cut off at the start.",
    "commits": "Writes to the disk.",
}


def metrics_text(snapshot: Snapshot, desk: DeskStatus, refused: int, streams: int) -> bytes:
    """Return the metrics in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(_of_controller(snapshot)))
    registry.register(_Collector(_of_nics(snapshot.nics)))
    if snapshot.analysis is not None:
        registry.register(_Collector(_of_analysis(snapshot.analysis)))
    registry.register(_Collector(of_findings(desk)))
    registry.register(_Collector(of_hooks(desk)))
    registry.register(_Collector(_of_api(refused, streams)))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def _of_api(refused: int, streams: int) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "pulse_api_refused", "Requests without the token, or in a wrong name.", value=refused
    )
    yield GaugeMetricFamily("pulse_api_streams", "Readers of the event stream.", value=streams)


def _of_analysis(status: AnalysisStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "pulse_analysis_running", "1 while there is a process that looks.", value=float(status.running)
    )
    counts = {
        "restarts": ("Times that this process had to be begun again.", status.restarts),
        "hung": ("Times that it was ended because it hung.", status.hung),
    }
    alive = status.alive
    if alive is not None:
        looks, intake = alive.looks, alive.intake
        counts |= {
            "looks": ("Looks at recent traffic.", looks.looks),
            "failed_looks": ("Looks that failed.", looks.failed),
            "cut_looks": ("Looks at less than was wanted, since there was too much traffic.", looks.cut),
            "frames": ("Frames that analysis has noted.", intake.frames),
            "late_frames": ("Frames among them that came after a later one.", intake.late),
            "dpu_restarts": ("Times that a DPU's process was a new one.", intake.restarts),
            "let_go_frames": ("Frames let go before they were old, for want of room.", intake.let_go_early),
        }
        gauges = {
            "look_seconds": ("Processor time of the last look.", looks.last_seconds),
            "window_seconds": ("Traffic that the last look covered.", looks.last_span_ns / 1e9),
            "held_frames": ("Frames that windows may ask for.", alive.held_frames),
            "decoded_bytes": ("Tables in memory.", looks.decoded_bytes),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"pulse_analysis_{name}", text, value=value)
        yield CounterMetricFamily(
            "pulse_analysis_look_cpu_seconds", "Processor time of all looks.", value=looks.seconds
        )
    for name, (text, count) in counts.items():
        yield CounterMetricFamily(f"pulse_analysis_{name}", text, value=count)


def _of_controller(snapshot: Snapshot) -> Iterator[Metric]:
    for name, text in _INGEST_COUNTS.items():
        yield CounterMetricFamily(f"pulse_ingest_{name}", text, value=snapshot.ingest[name])
    for name, text in _HISTORY_GAUGES.items():
        yield GaugeMetricFamily(f"pulse_history_{name}", text, value=snapshot.history[name])
    for name, text in _HISTORY_COUNTS.items():
        yield CounterMetricFamily(f"pulse_history_{name}", text, value=snapshot.history[name])
    gauges = {
        "pulse_ready": ("1 while frames are acknowledged.", float(snapshot.problem is None)),
        "pulse_connections": ("Connections and handshakes.", snapshot.connections),
        "pulse_pending_bytes": ("Bytes of frames that are not durable yet.", snapshot.pending_bytes),
        "pulse_uptime_seconds": ("Time since the start.", snapshot.uptime_s),
    }
    if snapshot.certificate_expires_s is not None:
        text = "When the own certificate expires, seconds since 1970."
        gauges["pulse_certificate_expiry_seconds"] = text, snapshot.certificate_expires_s
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily(
        "pulse_durable_frames", "Frames made durable since the start.", value=snapshot.durable_frames
    )
    yield CounterMetricFamily(
        "pulse_write_failures", "Times that the disk took nothing.", value=snapshot.write_failures
    )


def _of_nics(nics: tuple[NicSnapshot, ...]) -> Iterator[Metric]:
    for name, text in _NIC_COUNTS.items():
        family = CounterMetricFamily(f"pulse_nic_{name}", text, labels=_LABELS)
        for nic in nics:
            family.add_metric((nic.machine, nic.nic), nic.counts[name])
        yield family
    yield _gauge(nics, "pulse_nic_connected", "1 while it is connected.", lambda nic: float(nic.connected))
    yield _gauge(
        nics, "pulse_nic_missing_frames", "Frames that have not come.", lambda nic: nic.counts["missing"]
    )
    yield _gauge(
        nics,
        "pulse_nic_last_frame_seconds",
        "When the last frame came, seconds since 1970.",
        lambda nic: nic.last_received_ns / 1e9 or None,
    )
    yield _gauge(
        nics,
        "pulse_nic_clock_offset_seconds",
        "System clock of its machine minus ours.",
        lambda nic: None if nic.clock is None else nic.clock.offset_ns / 1e9,
    )
    yield _gauge(
        nics,
        "pulse_nic_clock_uncertainty_seconds",
        "How wrong that may be.",
        lambda nic: None if nic.clock is None else nic.clock.uncertainty_ns / 1e9,
    )


def _gauge(
    nics: tuple[NicSnapshot, ...], name: str, text: str, value_of: Callable[[NicSnapshot], float | None]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=_LABELS)
    for nic in nics:
        value = value_of(nic)
        if value is not None:
            family.add_metric((nic.machine, nic.nic), value)
    return family
