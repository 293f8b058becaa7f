# SPDX-License-Identifier: Apache-2.0
"""A cluster as a TOML file: tables and keys are the spec dataclasses and their fields, units in the names."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import tomllib

from sim.limits import RANGES
from sim.spec import (
    CaptureSpec,
    ClockSpec,
    JobSpec,
    NetworkSpec,
    NoiseSpec,
    Scenario,
    SimulationError,
    StackSpec,
    TransportSpec,
)

_MTUS = (256, 512, 1024, 2048, 4096)
_HEADING = """\
# A cluster for `pulse sim run --cluster FILE`. What is left out keeps the default.
# Times are nanoseconds, sizes bytes, rates Gbit/s, as the names say.
"""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Machines, network, library, clocks and what is captured; without ``jobs`` a preset says what runs."""

    machines: int = 8
    nics_per_machine: int = 8
    gpus_per_nic: int = 1
    train_packets: int = 1
    storage: bool = False
    network: NetworkSpec = field(default_factory=NetworkSpec)
    transport: TransportSpec = field(default_factory=TransportSpec)
    stack: StackSpec = field(default_factory=StackSpec)
    noise: NoiseSpec = field(default_factory=NoiseSpec)
    clocks: ClockSpec = field(default_factory=ClockSpec)
    capture: CaptureSpec = field(default_factory=CaptureSpec)
    jobs: tuple[JobSpec, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs per machine."""
        return self.nics_per_machine * self.gpus_per_nic

    def scenario(self, name: str, seed: int) -> Scenario:
        """The healthy run of the cluster's jobs."""
        longest_ns = max((job.compute_ns for job in self.jobs), default=0)
        return Scenario(
            name,
            seed,
            self.machines,
            self.jobs,
            self.nics_per_machine,
            self.network,
            self.transport,
            self.stack,
            self.noise,
            self.clocks,
            self.capture,
            storage=self.storage,
            # A stop is watched until all retries are over, and for several iterations.
            watch_ns=max((self.transport.retry_limit + 2) * self.transport.timeout_ns, 8 * longest_ns),
            gpus_per_nic=self.gpus_per_nic,
            train_packets=self.train_packets,
        )


_TABLES: Mapping[str, type] = MappingProxyType(
    {
        "network": NetworkSpec,
        "transport": TransportSpec,
        "stack": StackSpec,
        "noise": NoiseSpec,
        "clocks": ClockSpec,
        "capture": CaptureSpec,
    }
)
_KINDS = MappingProxyType(
    {
        ClusterSpec: "scenario",
        JobSpec: "job",
        ClockSpec: "clock",
        **{kind: name for name, kind in _TABLES.items() if kind is not ClockSpec},
    }
)
_SCALARS = tuple(f.name for f in fields(ClusterSpec) if f.name not in (*_TABLES, "jobs"))


def read_cluster(path: Path, base: ClusterSpec) -> ClusterSpec:
    """The cluster that a file describes; what it leaves out is taken from ``base``.

    Raises SimulationError, which names file, table and key.
    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise SimulationError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # TOML, its encoding, and numbers of absurd length
        raise SimulationError(f"{path}: is no TOML: {error}") from error
    return parse_cluster(content, str(path), base)


def parse_cluster(content: Mapping[str, Any], file: str, base: ClusterSpec) -> ClusterSpec:
    """The cluster that the tables of a file describe."""
    for name in content:
        if name not in ("cluster", "jobs", *_TABLES):
            raise SimulationError(
                f"{file}: unknown table [{name}]{_hint(name, ('cluster', 'jobs', *_TABLES))}"
            )
    changes = _values(f"{file}: [cluster]", ClusterSpec, content.get("cluster", {}), _SCALARS)
    for name, kind in _TABLES.items():
        if name in content:
            where = f"{file}: [{name}]"
            changes[name] = _built(where, getattr(base, name), _values(where, kind, content[name]))
    jobs = content.get("jobs", [])
    if not isinstance(jobs, list):
        raise SimulationError(f"{file}: jobs: write each job as a table [[jobs]]")
    if jobs:
        changes["jobs"] = tuple(_job(f"{file}: [[jobs]] {n}", job) for n, job in enumerate(jobs, 1))
    try:
        cluster = replace(base, **changes)
        placed = cluster.jobs or (JobSpec(tuple(range(cluster.machines))),)
        replace(cluster, jobs=placed).scenario("of this file", 0)
    except SimulationError as error:
        raise SimulationError(f"{file}: {error}") from error
    return cluster


def _job(where: str, table: object) -> JobSpec:
    values = _values(where, JobSpec, table)
    if not values.get("machines"):
        raise SimulationError(f"{where}: machines: missing; give the numbers of the job's machines")
    try:
        return JobSpec(**values)
    except SimulationError as error:
        raise SimulationError(f"{where}: {error}") from error


def _built(where: str, base: Any, values: dict[str, Any]) -> Any:
    try:
        return replace(base, **values)
    except SimulationError as error:
        raise SimulationError(f"{where}: {error}") from error


def _values(where: str, kind: type, table: object, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """The keys of a table, each checked against the field of that name."""
    if not isinstance(table, dict):
        raise SimulationError(f"{where}: expected a table of keys")
    known = names or tuple(f.name for f in fields(kind))
    hints = get_type_hints(kind)
    for key in table:
        if key not in known:
            raise SimulationError(f"{where} {key}: unknown key{_hint(key, known)}")
    return {
        key: _value(f"{where} {key}", _KINDS[kind], key, value, hints[key]) for key, value in table.items()
    }


def _value(where: str, kind: str, key: str, value: object, hint: Any) -> Any:
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise SimulationError(f"{where}: {_shown(value)} is neither true nor false")
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        names = [member.value for member in hint]
        if value in names:
            return hint(value)
        raise SimulationError(f"{where}: {_shown(value)} is none of {', '.join(names)}")
    if hint in (tuple[int, ...], tuple[float, ...]):
        if not isinstance(value, list):
            raise SimulationError(f"{where}: {_shown(value)} is no list of numbers")
        element = int if hint == tuple[int, ...] else float
        return tuple(_number(where, kind, key, item, element) for item in value)
    return _number(where, kind, key, value, float if hint is float else int)


def _number(where: str, kind: str, key: str, value: object, form: type[int | float]) -> int | float:
    allowed = (int, float) if form is float else (int,)
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise SimulationError(
            f"{where}: {_shown(value)} is no {'number' if form is float else 'whole number'}"
        )
    limit = RANGES[kind].get(key)
    possible = isinstance(value, int) or math.isfinite(value)
    if not possible or (limit is not None and value not in limit):
        raise SimulationError(f"{where}: {value} is impossible; give {limit or 'a finite number'}")
    if key == "mtu" and value not in _MTUS:
        raise SimulationError(f"{where}: {value} is no MTU; give one of {', '.join(map(str, _MTUS))}")
    return form(value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _hint(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, 2)
    return f"; did you mean {' or '.join(close)}?" if close else f"; known are {', '.join(known)}"


def to_toml(cluster: ClusterSpec) -> str:
    """The cluster as TOML that ``read_cluster`` turns into the same."""
    parts = [_HEADING, "[cluster]", *(_line(name, getattr(cluster, name)) for name in _SCALARS)]
    for name in _TABLES:
        parts += ["", f"[{name}]", *_lines(getattr(cluster, name))]
    for job in cluster.jobs:
        parts += ["", "[[jobs]]", *_lines(job)]
    return "\n".join(parts) + "\n"


def _lines(spec: Any) -> list[str]:
    return [_line(f.name, getattr(spec, f.name)) for f in fields(spec)]


def _line(name: str, value: object) -> str:
    return f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{', '.join(_toml(item) for item in value)}]"
        case _:
            return repr(value)
