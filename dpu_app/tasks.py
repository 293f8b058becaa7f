# SPDX-License-Identifier: Apache-2.0
"""Tasks of an event loop that belong together; Python 3.10 has no TaskGroup."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all parts until one ends or fails, which is raised; the others are cancelled."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
