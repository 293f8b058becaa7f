# SPDX-License-Identifier: Apache-2.0
"""Keeps what is remembered of jobs on disk, so that verdicts resume after a restart."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from host_ctl.diagnose.verdict import Candidate, Evidence, Verdict
from host_ctl.live.memory import JobMemory, KeptVerdict, Memory

_LOG = logging.getLogger(__name__)
_VERSION = 1


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new one, whole. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def write_memory(path: Path, memory: Memory) -> None:
    """Write what is remembered. Raises OSError."""
    # A suspicion is not worth keeping: if there is anything in it, it comes up again.
    changed = [{"connections": sorted(job.connections), "suspected": []} for job in memory.jobs]
    jobs = [asdict(job) | fields for job, fields in zip(memory.jobs, changed, strict=True)]
    content = {"version": _VERSION, "count": memory.count, "floor_ns": memory.floor_ns, "jobs": jobs}
    write_atomically(path, json.dumps(content))


def read_memory(path: Path) -> Memory:
    """Return what was remembered; nothing when there is no such file, or it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            return Memory()
        jobs = [_job(job) for job in content["jobs"]]
        return Memory(jobs, int(content["count"]), int(content["floor_ns"]))
    except FileNotFoundError:
        return Memory()
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s cannot be read (%s): jobs are learned anew", path, error)
        return Memory()


def _job(fields: dict[str, Any]) -> JobMemory:
    kept = [KeptVerdict(**(each | {"verdict": _verdict(each["verdict"])})) for each in fields["kept"]]
    changed = {"nics": tuple(fields["nics"]), "connections": frozenset(fields["connections"]), "kept": kept}
    return JobMemory(**(fields | changed))


def _verdict(fields: dict[str, Any]) -> Verdict:
    candidates = tuple(Candidate(**each) for each in fields["candidates"])
    evidence = tuple(Evidence(**each) for each in fields["evidence"])
    return Verdict(**(fields | {"candidates": candidates, "evidence": evidence}))
