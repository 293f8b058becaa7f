# SPDX-License-Identifier: Apache-2.0
"""How a request fails; all failures look alike to clients."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from host_ctl.incidents.plain import to_json

CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "not_json",
    500: "defect",
    503: "unavailable",
}


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """What went wrong: a word for programs and a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The body of every answer that is not 2xx, under /api/."""

    error: ErrorDetail


class ApiError(Exception):
    """Ends a request with a status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """The answer that tells of a failure."""
    answer = ErrorAnswer(ErrorDetail(CODES.get(status, "failed"), message))
    return Response(to_json(answer), status, headers, media_type="application/json")
