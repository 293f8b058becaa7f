# SPDX-License-Identifier: Apache-2.0
"""Says up to when traffic is known whole: as far as all NICs reach that are not late."""

from __future__ import annotations

from dataclasses import dataclass

from host_ctl.live.intake import Intake, NicName


@dataclass(frozen=True, slots=True)
class Closed:
    """Traffic is whole up to ``end_ns`` of the controller's clock, but for the NICs that are ``silent``."""

    end_ns: int
    silent: tuple[NicName, ...]


class Intervals:
    """Waits for every NIC that was heard lately, but for none longer than ``deadline_ns``."""

    def __init__(self, deadline_ns: int) -> None:
        self._deadline_ns = deadline_ns
        self._end_ns = -(2**63)

    def close(self, intake: Intake, now_ns: int) -> Closed | None:
        """Say how far traffic is closed at a time of the controller's clock; it never goes back.

        Who is behind the others by more than the deadline is silent, whether nothing comes or only what is
        old: the rest of a spool after an outage. It counts again once it has caught up.
        """
        reached = {nic.name: nic.reached_ns for nic in intake if nic.reached_ns <= now_ns + self._deadline_ns}
        if not reached:
            return None
        newest_ns = max(reached.values())
        in_time = [ns for ns in reached.values() if ns >= newest_ns - self._deadline_ns]
        # When nothing comes from anybody, nobody is behind: what is known whole is what has come.
        end_ns = self._end_ns = max(self._end_ns, min(in_time))
        silent = tuple(sorted(nic.name for nic in intake if nic.reached_ns < newest_ns - self._deadline_ns))
        return Closed(end_ns, silent)
