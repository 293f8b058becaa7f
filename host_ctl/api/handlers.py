# SPDX-License-Identifier: Apache-2.0
"""Answers: what each operation does."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, TypeVar

from starlette.responses import PlainTextResponse, Response, StreamingResponse

import pulse_native
from host_ctl.api.context import Asked, Context
from host_ctl.api.errors import ApiError
from host_ctl.api.metrics import metrics_text
from host_ctl.api.views import (
    IncidentAnswer,
    IncidentDetail,
    IncidentsAnswer,
    JobAnswer,
    LookAnswer,
    NicAnswer,
    NicsAnswer,
    SilencesAnswer,
    StatusAnswer,
    headline,
)
from host_ctl.incidents.queries import Filter, IncidentView
from host_ctl.incidents.records import Acknowledgement, Note, Silence
from host_ctl.live.findings import Findings

_STALE_S = 10.0
_DESK_S = 10.0
_Result = TypeVar("_Result")


async def healthz(context: Context, _: Asked) -> Response:
    """200 while the controller's loop turns."""
    age_s = context.snapshot().age_s
    if age_s > _STALE_S:
        return PlainTextResponse(f"the controller has hung for {age_s:.0f} s\n", 503)
    return PlainTextResponse("ok\n")


async def readyz(context: Context, asked: Asked) -> Response:
    """200 while frames are acknowledged."""
    problem = context.snapshot().problem
    hung = await healthz(context, asked)
    if hung.status_code != 200 or problem is None:
        return hung
    return PlainTextResponse(f"{problem}\n", 503)


async def metrics(context: Context, _: Asked) -> Response:
    """Prometheus' text format."""
    text = metrics_text(context.snapshot(), context.desk.status, context.refused(), context.events.readers)
    return Response(text, media_type="text/plain; version=0.0.4")


async def status(context: Context, _: Asked) -> StatusAnswer:
    """How it goes."""
    snapshot, desk = context.snapshot(), context.desk.status
    latest = desk.latest
    return StatusAnswer(
        version=pulse_native.__version__,
        health="unsure" if latest is None else latest.health,
        summary=headline(latest),
        ready=snapshot.problem is None and snapshot.age_s <= _STALE_S,
        problem=snapshot.problem,
        incidents_problem=desk.problem,
        uptime_s=snapshot.uptime_s,
        analysed_until_ns=None if latest is None else latest.end_ns,
        analysis_age_s=None if latest is None else time.monotonic() - desk.latest_s,
        analysis_problems=() if latest is None else latest.problems,
        looks=desk.looks,
        jobs=0 if latest is None else len(latest.jobs),
        nics=len(snapshot.nics),
        nics_connected=sum(nic.connected for nic in snapshot.nics),
        nics_silent=() if latest is None else latest.silent,
        open_incidents=len(desk.open),
        hooks=desk.hooks,
    )


async def jobs(context: Context, _: Asked) -> LookAnswer:
    """The jobs of the last look."""
    return LookAnswer.of(_latest(context))


async def job(context: Context, asked: Asked) -> JobAnswer:
    """One of them."""
    key = asked.request.path_params["key"]
    for each in _latest(context).jobs:
        if each.key == key:
            return JobAnswer.of(each)
    raise ApiError(404, f"there is no job {key} in the last look")


async def findings(context: Context, _: Asked) -> Response:
    """The latest report."""
    return Response(json.dumps(_latest(context).report), media_type="application/json")


async def details(context: Context, _: Asked) -> Response:
    """The tables behind the latest report."""
    text = _latest(context).details
    if not text:
        raise ApiError(404, "the last look saw nothing of which there are details")
    return Response(text, media_type="application/json")


async def nics(context: Context, _: Asked) -> NicsAnswer:
    """All NICs."""
    latest = context.desk.status.latest
    silent = frozenset() if latest is None else frozenset(latest.silent)
    return NicsAnswer(tuple(NicAnswer.of(nic, silent) for nic in context.snapshot().nics))


async def incidents(context: Context, asked: Asked) -> IncidentsAnswer:
    """A page of incidents."""
    query = asked.query
    wanted = Filter(**{name: getattr(query, name) for name in Filter.__slots__})
    page = await _read(lambda: context.reader.page(wanted))
    acknowledged = context.desk.status.acknowledged
    found = tuple(IncidentAnswer.of(i, acknowledged=i.number in acknowledged) for i in page.incidents)
    return IncidentsAnswer(found, page.next_before)


async def incident(context: Context, asked: Asked) -> IncidentDetail:
    """An incident."""
    return await _detail(context, asked)


async def incident_report(context: Context, asked: Asked) -> Response:
    """A report that belongs to an incident."""
    number, kind = asked.number("id"), asked.request.path_params["kind"]
    kinds: dict[str, Literal["opening", "latest"]] = {"opening": "opening", "latest": "latest"}
    text = None
    if number is not None and kind in kinds:
        text = await _read(lambda: context.reader.report(number, kinds[kind]))
    if text is None:
        raise ApiError(404, f"there is no report {kind} of an incident {asked.request.path_params['id']}")
    return Response(text, media_type="application/json")


async def acknowledge(context: Context, asked: Asked) -> Acknowledgement:
    """Take an incident on."""
    said = asked.body
    return await _done(context.desk.acknowledge(_number(asked), said.author, said.text))


async def note(context: Context, asked: Asked) -> Note:
    """Write something about an incident."""
    said = asked.body
    return await _done(context.desk.note(_number(asked), said.author, said.text))


async def end(context: Context, asked: Asked) -> IncidentAnswer:
    """End an incident."""
    said = asked.body
    ended = await _done(context.desk.end(_number(asked), said.author, said.text))
    return IncidentAnswer.of(ended, acknowledged=False)


async def silences(context: Context, _: Asked) -> SilencesAnswer:
    """The silences that hold."""
    return SilencesAnswer(context.desk.status.silences)


async def silence(context: Context, asked: Asked) -> Silence:
    """Begin a silence."""
    said, now_ns = asked.body, time.time_ns()
    if said.machine is said.job is said.cause is None:
        raise ApiError(400, 'name a machine, job or cause; "*" fits everything')
    if (said.ends_ns is None) == (said.duration_s is None):
        raise ApiError(400, "say either ends_ns or duration_s")
    ends_ns = said.ends_ns if said.duration_s is None else now_ns + round(said.duration_s * 1e9)
    if ends_ns <= now_ns:
        raise ApiError(400, "ends_ns lies in the past")
    wanted = Silence(0, now_ns, ends_ns, said.author, said.text, said.machine, said.job, said.cause)
    return await _done(context.desk.silence(wanted))


async def unsilence(context: Context, asked: Asked) -> Silence:
    """End a silence."""
    return await _done(context.desk.unsilence(_number(asked)))


async def events(context: Context, asked: Asked) -> Response:
    """The stream of events."""
    stream = context.events.read(asked.request.headers.get("last-event-id"))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def openapi(context: Context, _: Asked) -> Response:
    """The documentation."""
    return Response(json.dumps(context.document), media_type="application/json")


def _latest(context: Context) -> Findings:
    latest = context.desk.status.latest
    if latest is None:
        raise ApiError(404, "nothing has been analysed yet")
    return latest


def _number(asked: Asked) -> int:
    number = asked.number("id")
    if number is None:
        raise ApiError(404, f"there is no {asked.request.path_params['id']}")
    return number


async def _detail(context: Context, asked: Asked) -> IncidentDetail:
    number = _number(asked)
    view: IncidentView | None = await _read(lambda: context.reader.view(number))
    if view is None:
        raise ApiError(404, f"there is no incident i{number}")
    answer = IncidentAnswer.of(view.incident, acknowledged=view.acknowledgement is not None)
    return IncidentDetail(answer, view.acknowledgement, view.updates, view.notes, view.deliveries)


async def _read(question: Callable[[], _Result]) -> _Result:
    """Ask the file in a thread of its own."""
    try:
        return await asyncio.to_thread(question)
    except sqlite3.Error as error:
        raise ApiError(503, f"incidents cannot be read: {error}") from error


async def _done(future: Future[_Result]) -> _Result:
    """Wait until it is kept."""
    try:
        async with asyncio.timeout(_DESK_S):
            return await asyncio.wrap_future(future)
    except LookupError as error:
        raise ApiError(404, str(error.args[0])) from error
    except sqlite3.Error as error:
        raise ApiError(503, f"it cannot be kept: {error}") from error
    except TimeoutError as error:
        raise ApiError(503, "the disk does not answer; whether it will be kept is open") from error
