# SPDX-License-Identifier: Apache-2.0
"""The application: each operation of the table as a route, and every failure in one form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from host_ctl.api.context import Asked, Context
from host_ctl.api.errors import ApiError, error_response
from host_ctl.api.operations import Operation
from host_ctl.api.schemas import read_body, read_query
from host_ctl.api.table import OPERATIONS
from host_ctl.incidents.plain import to_json

_MOST_BYTES = 64 << 10
_BODY_S = 10.0


def build_application(context: Context) -> Starlette:
    """Return the ASGI application."""
    routes = [
        Route(each.path, _endpoint(context, each), methods=[each.method], name=each.name)
        for each in OPERATIONS
    ]
    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: _on_http_error, ApiError: _on_api_error, Exception: _on_defect},
    )


def _endpoint(context: Context, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        query = None if operation.query is None else read_query(operation.query, dict(request.query_params))
        body = None if operation.body is None else read_body(operation.body, await _body_of(request))
        found = await operation.handler(context, Asked(request, query, body))
        if isinstance(found, Response):
            return found
        return Response(to_json(found), media_type="application/json")

    return answer


async def _body_of(request: Request) -> bytes:
    # Pages of other sites cannot send this type without asking first.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "the body must be of the type application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise ApiError(413, f"the body is larger than {_MOST_BYTES} bytes")
    except ClientDisconnect as error:
        raise ApiError(400, "the body ended too early") from error
    except TimeoutError as error:
        raise ApiError(408, f"the body did not come within {_BODY_S:g} s") from error
    return bytes(body)


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    # What is left of a body that is too large must not be taken for the next request.
    return error_response(
        error.status, str(error), {"Connection": "close"} if error.status in (408, 413) else None
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = {404: f"there is no {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
    return error_response(
        error.status_code, said.get(error.status_code, error.detail), dict(error.headers or {})
    )


async def _on_defect(_: Request, error: Exception) -> Response:
    return error_response(500, f"a defect: {type(error).__name__}; the log has more")
