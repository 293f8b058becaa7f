# SPDX-License-Identifier: Apache-2.0
"""Tells health and metrics over HTTP on this machine, from a thread of its own.

So an answer comes, and says that something is wrong, also when the controller's loop hangs.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from host_ctl.service.metrics import metrics_text
from host_ctl.service.snapshot import Snapshot

_STALE_S = 10.0
_STOP_S = 5.0
_CONNECTIONS = 64


def status_application(latest: Callable[[], Snapshot]) -> Starlette:
    """Return the ASGI application; `latest` is asked for every answer."""

    async def healthz(_: Request) -> Response:
        age_s = latest().age_s
        if age_s > _STALE_S:
            return PlainTextResponse(f"the controller has hung for {age_s:.0f} s\n", 503)
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        snapshot = latest()
        if snapshot.age_s > _STALE_S:
            return PlainTextResponse(f"the controller has hung for {snapshot.age_s:.0f} s\n", 503)
        if snapshot.problem is not None:
            return PlainTextResponse(f"{snapshot.problem}\n", 503)
        return PlainTextResponse("ok\n")

    async def metrics(_: Request) -> Response:
        return Response(metrics_text(latest()), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
    )


class StatusThread:
    """Serves the application on an address of this machine. Raises OSError when it cannot be listened on."""

    def __init__(self, host: str, port: int, latest: Callable[[], Snapshot]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            text = f"status.address {host}:{port} cannot be listened on: {error.strerror or error}"
            raise OSError(error.errno, text) from error
        config = uvicorn.Config(
            status_application(latest),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="status", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on, also when any was asked for."""
        return int(self._listener.getsockname()[1])

    def stop(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._listener.close()
