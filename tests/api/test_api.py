# SPDX-License-Identifier: Apache-2.0
"""What the API answers, and that its documentation says so."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openapi_spec_validator
import pytest

from host_ctl.api.table import FREE, OPERATIONS
from host_ctl.incidents.hooks.config import HookConfig
from host_ctl.present.report import report_schema
from tests.api.running import Served, snapshot
from tests.incidents.made import DETAILS, findings, job, verdict

SLOW = job(verdict())
HEALTHY = job()
API = "/api/v1"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """The API over a desk with a hook that reaches nobody."""
    hook = HookConfig(name="pager", kind="syslog", address=f"unix:{tmp_path}/none")
    with Served(tmp_path, hook) as running:
        yield running


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An API that tests ask nothing of that changes anything."""
    with Served(tmp_path_factory.mktemp("idle")) as running:
        yield running


class Documented:
    """Asks, and holds every answer against the document."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.document: dict[str, Any] = served.ask(f"{API}/openapi.json")[1]
        self.asked: set[tuple[str, str]] = set()

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        """Ask as `Served.ask` does."""
        status, answer = self._served.ask(path, method, body)
        template = next(
            known
            for known in sorted(self.document["paths"], key=lambda known: known.count("{"))
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", known), path.partition("?")[0])
        )
        self.asked.add((method, template))
        said = self.document["paths"][template][method.lower()]["responses"][str(status)]["content"]
        (media,) = said
        if media == "application/json":
            schema = said[media]["schema"] | {"components": self.document["components"]}
            jsonschema.validate(answer, schema, cls=jsonschema.Draft202012Validator)
        return status, answer


def test_every_operation_answers_as_the_document_says(served: Served) -> None:
    documented = Documented(served)
    ask = documented.ask
    for path in (
        "jobs",
        "jobs/training",
        "findings",
        "details",
        "incidents/i1",
        "incidents/i1/reports/latest",
    ):
        assert ask(f"{API}/{path}")[0] == 404
    assert ask(f"{API}/status")[1]["summary"] == "nothing has been analysed yet"
    served.see(SLOW, SLOW, SLOW)
    status = ask(f"{API}/status")[1]
    found = {
        key: status[key] for key in ("health", "summary", "open_incidents", "jobs", "nics", "ready", "looks")
    }
    assert found == {
        "health": "degraded", "summary": "node1: compute_slow", "open_incidents": 1, "jobs": 1, "nics": 4,
        "ready": True, "looks": 3,
    }  # fmt: skip
    (hook,) = status["hooks"]
    assert (hook["name"], hook["waiting"]) == ("pager", 1)
    assert ask(f"{API}/jobs")[1]["jobs"][0] == ask(f"{API}/jobs/training")[1]
    assert ask(f"{API}/jobs/training")[1]["iteration_s"] == 0.1
    assert [nic["machine"] for nic in ask(f"{API}/nics")[1]["nics"]] == ["node0", "node1", "node2", "node3"]
    (incident,) = ask(f"{API}/incidents?state=open&machine=node1&limit=10")[1]["incidents"]
    assert (incident["id"], incident["cause"], incident["acknowledged"]) == ("i1", "compute_slow", False)
    assert ask(f"{API}/incidents?state=ended")[1] == {"incidents": [], "next_before": None}
    said = {"author": "ann", "text": "mine"}
    assert ask(f"{API}/incidents/i1/ack", "POST", said)[1]["author"] == "ann"
    assert ask(f"{API}/incidents/i1/note", "POST", said)[1]["text"] == "mine"
    detail = ask(f"{API}/incidents/i1")[1]
    assert [step["kind"] for step in detail["updates"]] == ["opened", "acknowledged"]
    assert [note["text"] for note in detail["notes"]] == ["mine"]
    assert detail["deliveries"][0]["state"] == "waiting"
    assert detail["incident"]["acknowledged"]
    silence = ask(f"{API}/silences", "POST", {"author": "ann", "machine": "node*", "duration_s": 60})[1]
    assert ask(f"{API}/silences")[1]["silences"] == [silence]
    assert ask(f"{API}/silences/{silence['number']}", "DELETE")[1]["ends_ns"] <= time.time_ns()
    assert ask(f"{API}/silences/{silence['number']}", "DELETE")[0] == 404
    assert ask(f"{API}/silences")[1]["silences"] == []
    assert ask(f"{API}/incidents/i1/end", "POST", said)[1]["end_reason"] == "ended by ann: mine"
    assert ask(f"{API}/incidents/i1/ack", "POST", said)[0] == 404
    for path in ("/healthz", "/readyz", "/metrics", f"{API}/openapi.json"):
        assert ask(path)[0] == 200
    everything = {(each.method, each.path) for each in OPERATIONS}
    streams = {("GET", f"{API}/events")}
    reports = {("GET", f"{API}/findings"), ("GET", f"{API}/incidents/{{id}}/reports/{{kind}}")}
    assert ask(f"{API}/details")[1] == json.loads(DETAILS)
    assert everything - documented.asked == streams
    assert reports <= documented.asked


def test_reports_are_handed_on_as_they_are(served: Served) -> None:
    served.see(SLOW, SLOW, SLOW, HEALTHY, job(verdict(cause="nic_slow")))
    opening, latest = (served.ask(f"{API}/incidents/i1/reports/{kind}")[1] for kind in ("opening", "latest"))
    assert opening["verdicts"] == [{"summary": "node1: compute_slow"}]
    assert latest["verdicts"] == [{"summary": "node1: nic_slow"}]
    assert latest == served.ask(f"{API}/findings")[1]
    assert served.ask(f"{API}/incidents/i1/reports/other")[0] == 404


def test_the_document_is_the_table_and_has_the_schema_of_reports(idle: Served) -> None:
    document = idle.ask(f"{API}/openapi.json")[1]
    documented = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert documented == {(each.method, each.path) for each in OPERATIONS}
    report = {key: value for key, value in report_schema().items() if key != "$schema"}
    assert document["components"]["schemas"]["Report"] == report
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    free = {
        path for path, methods in document["paths"].items() if methods.get("get", {}).get("security") == []
    }
    assert free == set(FREE)


def test_the_document_is_openapi(idle: Served) -> None:
    openapi_spec_validator.validate(idle.ask(f"{API}/openapi.json")[1])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/api/v1/nothing", None, 404, "there is no /api/v1/nothing"),
        ("GET", "/", None, 404, "there is no /"),
        ("POST", "/api/v1/status", {}, 405, "POST is not for /api/v1/status"),
        ("GET", "/api/v1/incidents?limit=0", None, 400, "limit is 0; it must be 1 to 500"),
        ("GET", "/api/v1/incidents?limit=ten", None, 400, "it must be a whole number"),
        ("GET", "/api/v1/incidents?state=shut", None, 400, "'shut' is none of ('open', 'ended')"),
        ("GET", "/api/v1/incidents?stat=open", None, 400, "there is no parameter stat; there are state"),
        ("GET", "/api/v1/incidents/seven", None, 404, "there is no seven"),
        ("GET", f"/api/v1/incidents/i{'9' * 30}", None, 404, "there is no i999"),
        ("POST", "/api/v1/incidents/i1/ack", b"{", 400, "the body is no JSON"),
        ("POST", "/api/v1/incidents/i1/ack", b"[" * 60_000, 400, "the body is no JSON"),
        ("POST", "/api/v1/incidents/i1/ack", b"\xff\xfe\x00", 400, "the body is no JSON"),
        ("POST", "/api/v1/incidents/i1/ack", [1], 400, "must be a JSON object"),
        ("POST", "/api/v1/incidents/i1/ack", {}, 400, "author is missing"),
        ("POST", "/api/v1/incidents/i1/ack", {"author": 7}, 400, "7 is no str"),
        ("POST", "/api/v1/incidents/i1/ack", {"author": ""}, 400, "1 to 200 characters"),
        ("POST", "/api/v1/incidents/i1/ack", {"author": "a", "who": 1}, 400, "there is no who"),
        ("POST", "/api/v1/incidents/i1/ack", {"author": "a", "text": "x" * 70_000}, 413, "larger than 65536"),
        ("POST", "/api/v1/silences", {"author": "a", "duration_s": 5}, 400, "name a machine, job or cause"),
        ("POST", "/api/v1/silences", {"author": "a", "machine": "x"}, 400, "either ends_ns or duration_s"),
        ("POST", "/api/v1/silences", {"author": "a", "machine": "x", "ends_ns": 5}, 400, "in the past"),
        (
            "POST",
            "/api/v1/silences",
            {"author": "a", "machine": "x", "duration_s": 1e300},
            400,
            "must be 1 to",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_form(
    idle: Served, method: str, path: str, body: object, status: int, says: str
) -> None:
    answer = idle.ask(path, method, body)
    assert answer[0] == status, answer
    assert answer[1].keys() == {"error"}
    assert answer[1]["error"].keys() == {"code", "message"}
    assert says in answer[1]["error"]["message"]


def test_pages_of_browsers_can_neither_post_nor_ask_in_a_name_of_their_own(idle: Served) -> None:
    form = {"Content-Type": "text/plain"}
    status, answer = idle.ask(f"{API}/silences", "POST", b'{"author": "x", "machine": "*"}', headers=form)
    assert (status, answer["error"]["code"]) == (415, "not_json")
    status, answer = idle.ask(f"{API}/status", headers={"Host": "evil.example:7472"})
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    for host in ("localhost:1", "127.0.0.1", "[::1]:7472"):
        assert idle.ask(f"{API}/status", headers={"Host": host})[0] == 200


def test_health_says_why_not(served: Served) -> None:
    served.state = snapshot("the disk is full")
    assert served.ask("/readyz") == (503, "the disk is full\n")
    assert served.ask("/healthz") == (200, "ok\n")
    assert served.ask(f"{API}/status")[1]["problem"] == "the disk is full"
    served.state = snapshot(age_s=60.0)
    assert served.ask("/healthz")[0] == served.ask("/readyz")[0] == 503
    assert not served.ask(f"{API}/status")[1]["ready"]


def test_metrics_tell_of_jobs_incidents_and_hooks(served: Served) -> None:
    served.see(SLOW, SLOW, SLOW)
    text = served.ask("/metrics")[1]
    for line in (
        'pulse_job_iteration_seconds{job="training"} 0.1',
        'pulse_job_health{health="degraded",job="training"} 1.0',
        'pulse_job_health{health="ok",job="training"} 0.0',
        'pulse_health{health="degraded"} 1.0',
        'pulse_open_incidents{acknowledged="false",severity="fail_slow"} 1.0',
        'pulse_open_incidents{acknowledged="false",severity="fail_stop"} 0.0',
        'pulse_hook_waiting{hook="pager"} 1.0',
        'pulse_hook_deliveries_total{hook="pager",result="delivered"} 0.0',
        "pulse_looks_total 3.0",
        "pulse_incidents_written 1.0",
        'pulse_nic_connected{machine="node0",nic="mlx5_0"} 1.0',
        "pulse_analysis_end_seconds 1.700000003e+09",
    ):
        assert line in text.splitlines(), line
    labels = set(re.findall(r'(\w+)="', text))
    assert labels == {
        "machine",
        "nic",
        "job",
        "health",
        "severity",
        "acknowledged",
        "hook",
        "result",
        "cause",
    }


def test_a_thousand_jobs_do_not_make_a_thousand_series(served: Served) -> None:
    served.running.desk.take(findings(1, *[job(key=f"job-{number}") for number in range(1000)]))
    served.running.tick()
    text = served.ask("/metrics")[1]
    assert len(re.findall(r"^pulse_job_iteration_seconds\{", text, re.MULTILINE)) == 256


def test_pages_follow_each_other(served: Served) -> None:
    for number in range(5):
        many = job(verdict(f"node{number}"), key=f"job-{number}")
        served.see(many, many, many)
    first = served.ask(f"{API}/incidents?limit=3")[1]
    second = served.ask(f"{API}/incidents?limit=3&before={first['next_before']}")[1]
    assert [i["id"] for page in (first, second) for i in page["incidents"]] == ["i5", "i4", "i3", "i2", "i1"]
    assert second["next_before"] is None
    assert json.dumps(first).isascii()
