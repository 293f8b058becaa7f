# SPDX-License-Identifier: Apache-2.0
"""Runs `pulse-dpu` as a process of its own in a test's network namespace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "dpu_app.service.main"]


def toml(settings: Mapping[str, object]) -> str:
    """Settings by dotted key, as a file has them."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


class Service:
    """A running service; a context that kills it when it is still there. Settings are those of the file."""

    def __init__(
        self,
        namespace: str,
        folder: Path,
        settings: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.namespace = namespace
        self.file = folder / "dpu.toml"
        self.socket = folder / "status.sock"
        self._log = folder / "log"
        self._settings = {
            "interface": "nic0", "machine": "node1", "nic": "mlx5_0", "meter.interval_s": 0.1,
            "status.socket": str(self.socket), **settings,
        }  # fmt: skip
        self.write()
        self._environment = os.environ | dict(environment or {})
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *COMMAND, "run", "--config", str(self.file)],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Service:  # noqa: PYI034  Self is of Python 3.11
        self.wait(lambda: "capturing" in self.log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text()

    def write(self, **changes: object) -> None:
        """Write the settings, with changes; `__` stands for the dot of a key."""
        self._settings |= {key.replace("__", "."): value for key, value in changes.items()}
        self.file.write_text(toml(self._settings))

    def status(self) -> dict[str, Any]:
        """What it tells."""
        told: dict[str, Any] = json.loads(self.ask("--json"))
        return told

    def ask(self, *arguments: str) -> str:
        """What `pulse-dpu status` prints."""
        done = subprocess.run(
            [*COMMAND, "status", "--config", str(self.file), *arguments],
            cwd=ROOT, env=self._environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def wait(self, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Wait until something is so; fail when it never is or the service is gone."""
        end_s = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end_s, self.log
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; `ip netns exec` has become the service."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without any chance to tidy up."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """End it as systemd does; return the exit status."""
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout=30)
