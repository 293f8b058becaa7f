# SPDX-License-Identifier: Apache-2.0
"""A controller whose analysis is made up: `python -m tests.controller.fed --config FILE`.

Another thread tells it the same slow machine fifty times a second.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from pathlib import Path

from dpu_app.service.notify import Notifier
from host_ctl.service.controller import Controller
from host_ctl.service.settings import load_settings
from tests.incidents.made import findings, job, verdict


def feed(controller: Controller) -> None:
    """Tell it without end."""
    while True:
        time.sleep(0.02)
        controller.take(findings(0, job(verdict()), end_ns=time.time_ns()))


async def work(file: Path) -> None:
    """Run the controller."""
    controller = Controller(load_settings(file, {}, []), Notifier())
    threading.Thread(target=feed, args=(controller,), daemon=True).start()
    await controller.run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", stream=sys.stderr)
    asyncio.run(work(Path(sys.argv[2])))
