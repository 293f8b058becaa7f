# SPDX-License-Identifier: Apache-2.0
"""Makes events of the stream of what happens at the desk."""

from __future__ import annotations

from host_ctl.api.events import Broadcaster
from host_ctl.api.views import IncidentAnswer, IncidentEvent, LookAnswer
from host_ctl.incidents.desk import Desk, Event
from host_ctl.incidents.plain import to_json
from host_ctl.incidents.records import Acknowledgement, Change
from host_ctl.live.findings import Findings


class EventSource:
    """Listens to a desk, in the desk's thread."""

    def __init__(self, desk: Desk, events: Broadcaster) -> None:
        self._desk = desk
        self._events = events

    def __call__(self, event: Event) -> None:
        """Publish an event, if it is one that readers care for."""
        if isinstance(event, Findings):
            self._events.publish("look", to_json(LookAnswer.of(event)))
        elif isinstance(event, Change):
            acknowledged = event.incident.number in self._desk.status.acknowledged
            view = IncidentAnswer.of(event.incident, acknowledged=acknowledged and event.kind != "ended")
            self._publish(IncidentEvent(event.kind, event.at_ns, event.text, view))
        elif isinstance(event, Acknowledgement):
            for incident in self._desk.status.open:
                if incident.number == event.incident:
                    view = IncidentAnswer.of(incident, acknowledged=True)
                    said = f"{event.author}: {event.text}".rstrip(": ")
                    self._publish(IncidentEvent("acknowledged", event.at_ns, said, view))

    def _publish(self, event: IncidentEvent) -> None:
        self._events.publish("incident", to_json(event))
