# SPDX-License-Identifier: Apache-2.0
"""DCQCN's reaction point, event by event as Zhu et al. (SIGCOMM 2015) write it down in section 3.3."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ReactionPoint:
    """Rates are shares of the line rate, times ns; ``rounds`` is F, ``gain`` g."""

    alpha_timer_ns: float
    increase_timer_ns: float
    increase_bytes: int
    additive: float
    hyper: float
    gain: float = 1 / 256
    rounds: int = 5
    full: float = 0.999
    current: float = 1.0
    target: float = 1.0
    alpha: float = 1.0
    limited: bool = False

    def notify(self, now_ns: float) -> None:
        """A congestion notification has come: equation 1, and all timers begin anew."""
        self.limited = True
        self.target = self.current
        self.current *= 1 - self.alpha / 2
        self.alpha = (1 - self.gain) * self.alpha + self.gain
        self.next_alpha_ns = now_ns + self.alpha_timer_ns
        self.next_increase_ns = now_ns + self.increase_timer_ns
        self.timer_rounds = self.byte_rounds = self.bytes = 0

    def wait_until(self, now_ns: float) -> None:
        """Both timers run, whichever is first."""
        while self.limited and min(self.next_alpha_ns, self.next_increase_ns) <= now_ns:
            if self.next_alpha_ns <= self.next_increase_ns:
                self.alpha *= 1 - self.gain  # equation 2
                self.next_alpha_ns += self.alpha_timer_ns
            else:
                self.timer_rounds += 1
                self.next_increase_ns += self.increase_timer_ns
                self._increase()

    def send(self, size: int) -> None:
        """The byte counter."""
        if not self.limited or not self.increase_bytes:
            return
        self.bytes += size
        while self.limited and self.bytes >= self.increase_bytes:
            self.bytes -= self.increase_bytes
            self.byte_rounds += 1
            self._increase()

    def _increase(self) -> None:
        """Fast recovery, additive increase, hyper increase: equations 3 and 4."""
        if min(self.timer_rounds, self.byte_rounds) > self.rounds:
            self.target += self.hyper
        elif max(self.timer_rounds, self.byte_rounds) > self.rounds:
            self.target += self.additive
        self.target = min(self.target, 1.0)
        self.current = (self.target + self.current) / 2
        if self.current >= self.full:  # as NICs do: a flow at full rate holds no state
            self.current = self.target = self.alpha = 1.0
            self.limited = False
