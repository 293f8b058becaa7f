# SPDX-License-Identifier: Apache-2.0
"""All hooks: decides what each is to be told, and hands it to the hook's worker. Used by one thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from host_ctl.incidents.hooks.config import HookConfig
from host_ctl.incidents.hooks.payloads import alerts, document, labels_of
from host_ctl.incidents.hooks.policy import Standing, due
from host_ctl.incidents.hooks.worker import HookWorker
from host_ctl.incidents.records import Acknowledgement, Delivery, DeliveryKind, Told
from host_ctl.incidents.store import Unsaved

_ENDS: tuple[DeliveryKind, ...] = ("ended", "silenced")


@dataclass(frozen=True, slots=True)
class HookStatus:
    """How it goes with a hook; counts are those since the start."""

    name: str
    kind: str
    waiting: int
    delivered: int
    failed: int
    dropped: int
    attempts_failed: int
    problem: str | None


class Switchboard:
    """Keeps what hooks were told, and their workers. `url` is where people find the API."""

    def __init__(self, hooks: Sequence[HookConfig], url: str, report: Callable[[Delivery], None]) -> None:
        self._workers = {hook.name: HookWorker(hook, report) for hook in hooks}
        self._url = url
        self._told: dict[tuple[str, int], Told] = {}
        self._number = 0

    def restore(self, told: Iterable[Told], waiting: Iterable[Delivery], last: int, now_ns: int) -> Unsaved:
        """Go on where a former process was; return what of it is not to be told any more."""
        self._number = last
        self._told = {(each.hook, each.incident): each for each in told}
        unsaved = Unsaved()
        for delivery in waiting:
            worker = self._workers.get(delivery.hook)
            if worker is None:
                gone = [replace(delivery, state="dropped", error="there is no such hook", done_ns=now_ns)]
            else:
                gone = worker.put(delivery)
            unsaved.deliveries.update((each.number, each) for each in gone)
        return unsaved

    def start(self) -> None:
        """Begin to tell."""
        for worker in self._workers.values():
            worker.start()

    def stop(self) -> None:
        """End; what waits is on disk."""
        for worker in self._workers.values():
            worker.stop()

    @property
    def status(self) -> tuple[HookStatus, ...]:
        """How it goes with each."""
        return tuple(
            HookStatus(
                name, each.config.kind, each.waiting, each.counts.delivered, each.counts.failed,
                each.counts.dropped, each.counts.attempts_failed, each.problem,
            )
            for name, each in self._workers.items()
        )  # fmt: skip

    def told(self) -> list[Told]:
        """What hooks were told."""
        return list(self._told.values())

    def keep(self, numbers: Collection[int]) -> None:
        """Forget what was told of all other incidents."""
        self._told = {key: told for key, told in self._told.items() if key[1] in numbers}

    def consider(
        self, standing: Standing, acknowledgement: Acknowledgement | None, now_ns: int, unsaved: Unsaved
    ) -> None:
        """Have told what is due about an incident."""
        for worker in self._workers.values():
            key = worker.config.name, standing.incident.number
            told = self._told.get(key)
            kind = due(worker.config, standing, told, now_ns)
            if kind is None:
                continue
            by = None if acknowledgement is None else acknowledgement.author
            body = self._body(worker.config, kind, standing, told, by, now_ns)
            self._number += 1
            delivery = Delivery(self._number, *key, kind, body, now_ns)
            labels = json.dumps(labels_of(standing.incident))
            self._told[key] = Told(*key, kind not in _ENDS, labels, now_ns)
            # Repeats are not worth a write: after a restart they are due anyway.
            if kind != "repeated":
                unsaved.deliveries[delivery.number] = delivery
                unsaved.told[key] = self._told[key]
            for gone in worker.put(delivery):
                if gone.kind != "repeated":
                    unsaved.deliveries[gone.number] = gone

    def _body(
        self,
        hook: HookConfig,
        kind: DeliveryKind,
        standing: Standing,
        told: Told | None,
        acknowledged_by: str | None,
        now_ns: int,
    ) -> str:
        incident, change = standing.incident, standing.change
        url = f"{self._url.rstrip('/')}/api/v1/incidents/{incident.name}"
        if hook.kind != "alertmanager":
            text = incident.summary if change is None else change.text
            return document(kind, incident, text, now_ns, url, acknowledged_by)
        before = json.loads(told.labels) if told is not None and told.firing else None
        return alerts(
            incident, before, firing=kind not in _ENDS, now_ns=now_ns, repeat_s=hook.repeats_s, url=url,
            acknowledged_by=acknowledged_by,
        )  # fmt: skip
