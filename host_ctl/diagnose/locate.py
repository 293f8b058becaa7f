# SPDX-License-Identifier: Apache-2.0
"""Locates lost packets: the access link of one NIC, or the fabric between two.

Each hypothesis says which directed pairs of NICs lose packets: all that one NIC sends, all that it
receives, both, or one pair alone. Losses are Poisson with one rate on the affected pairs and the rate of
a healthy fabric on the rest; the likelihoods, with a prior against a fault that hits one pair only, give
the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

EDGE_PRIOR = 0.1  # against an access link: a switch port or cable serves one NIC, a fabric path many
DEAD_EDGE_PRIOR = 0.02  # nothing at all gets through one pair, and all through the others
_MAX_ENDS = 4
_MIN_PROBABILITY = 0.01
_PASSED = 0.1  # of what was under way about when a link died or came back, the times of which are not known
_HEALTHY_RATE = 1e-5  # of a lossless fabric's packets, capture artefacts included

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Location:
    """Candidates for the place of losses, by probability: a NIC's access link, or one directed pair."""

    nics: tuple[tuple[int, float], ...]
    pairs: tuple[tuple[Pair, float], ...]

    @property
    def nic(self) -> tuple[int, float]:
        """The likeliest NIC and its probability."""
        return self.nics[0]

    @property
    def ends(self) -> tuple[tuple[int, float], ...]:
        """Up to four NICs that the place may lie at, the likeliest first; both ends of a pair alike."""
        weights = dict(self.nics)
        for pair, p in self.pairs:
            for end in pair:
                weights[end] = weights.get(end, 0.0) + p / 2
        ranked = sorted(weights.items(), key=lambda item: -item[1])[:_MAX_ENDS]
        return tuple((nic, p) for nic, p in ranked if p >= _MIN_PROBABILITY)


def locate_losses(
    sent: dict[Pair, int],
    lost: dict[Pair, int],
    before_tap: dict[int, int],
    edge_prior: float = EDGE_PRIOR,
    *,
    dead: bool = False,
) -> Location:
    """Rank the places that explain the losses; a ``dead`` one lets hardly anything pass.

    ``sent`` and ``lost`` count packets per directed pair, ``before_tap`` those that a NIC lost before its
    own capture saw them: these only the NIC itself explains.
    """
    nics = sorted({n for pair in sent for n in pair})
    scores: dict[int | Pair, float] = {}
    for nic in nics:
        sides = (
            {p for p in sent if p[0] == nic},
            {p for p in sent if p[1] == nic},
            {p for p in sent if nic in p},
        )
        scores[nic] = max(_likelihood(sent, lost, side, dead) for side in sides) + _own(before_tap, nic)
    for pair, count in lost.items():
        if count:
            scores[pair] = _likelihood(sent, lost, {pair}, dead) + _own(before_tap, None) + log(edge_prior)
    best = max(scores.values(), default=0.0)
    weights = {place: exp(max(score - best, -700.0)) for place, score in scores.items()}
    total = sum(weights.values()) or 1.0
    ranked = sorted(((place, w / total) for place, w in weights.items()), key=lambda item: -item[1])
    return Location(
        nics=tuple((p, w) for p, w in ranked if isinstance(p, int)),
        pairs=tuple((p, w) for p, w in ranked if isinstance(p, tuple)),
    )


def _likelihood(sent: dict[Pair, int], lost: dict[Pair, int], affected: set[Pair], dead: bool) -> float:
    """Log-likelihood of the losses when only ``affected`` pairs lose packets above the background."""
    score = 0.0
    packets = sum(sent[p] for p in affected)
    losses = sum(lost.get(p, 0) for p in affected)
    if dead:
        score += max(packets - losses, 0) * log(_PASSED)
    elif packets:
        rate = max(losses / packets, _HEALTHY_RATE)
        score += losses * log(rate) - rate * packets
    for pair, count in sent.items():
        if pair not in affected:
            score += lost.get(pair, 0) * log(_HEALTHY_RATE) - _HEALTHY_RATE * count
    return score


def _own(before_tap: dict[int, int], nic: int | None) -> float:
    """Losses before a tap are certain for their own NIC and as good as impossible for any other place."""
    return sum(count * (0.0 if owner == nic else log(_HEALTHY_RATE)) for owner, count in before_tap.items())
