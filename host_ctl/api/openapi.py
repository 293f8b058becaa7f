# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI 3.1 document of a table of operations."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields
from http import HTTPStatus
from typing import Any

from host_ctl.api.errors import ErrorAnswer
from host_ctl.api.operations import Operation
from host_ctl.api.schemas import Components, Schema, keywords_of
from host_ctl.api.views import IncidentEvent, LookAnswer
from host_ctl.incidents.plain import hints_of
from host_ctl.present.report import document_schema

_PATH_PARAMETERS: dict[str, Schema] = {
    "incidents/{id}": {"type": "string", "pattern": "^i?[0-9]+$", "description": "an incident, as i7"},
    "silences/{id}": {"type": "string", "pattern": "^[0-9]+$", "description": "the number of a silence"},
    "reports/{kind}": {"type": "string", "enum": ["opening", "latest"], "description": "which report"},
    "jobs/{key}": {"type": "string", "description": "the key of a job"},
}
_DOCUMENTS = ("report", "details")
_STREAM = (
    "Server-sent events: `look` with LookAnswer, `incident` with IncidentEvent, `gap` when events since "
    "Last-Event-ID are gone, `dropped` before the end when the reader was too slow."
)


def build_document(operations: Sequence[Operation], free: Collection[str], version: str) -> dict[str, Any]:
    """Return the document."""
    components = Components()
    for name in _DOCUMENTS:
        schema = {key: value for key, value in document_schema(name).items() if key != "$schema"}
        components.schemas[name.capitalize()] = schema
    for kind in (LookAnswer, IncidentEvent, ErrorAnswer):
        components.of(kind)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, components, free=operation.path in free)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pulse controller",
            "version": version,
            "summary": "Which machine slows or stops a training job, from its network traffic",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, components: Components, *, free: bool) -> dict[str, Any]:
    parameters = _path_parameters(operation.path)
    if operation.query is not None:
        parameters += _query_parameters(operation.query, components)
    if operation.media == "text/event-stream":
        parameters.append({"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}})
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {"200": _answer(operation, components)} | _failures(operation, components, free=free),
        # The token is needed where one is set.
        "security": [] if free else [{}, {"token": []}],
    }
    if operation.body is not None:
        schema = components.of(operation.body)
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described


def _answer(operation: Operation, components: Components) -> dict[str, Any]:
    if operation.answer is not None:
        content = {"application/json": {"schema": components.of(operation.answer)}}
    elif operation.media in _DOCUMENTS:
        name = operation.media.capitalize()
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    elif operation.media == "document":
        content = {"application/json": {"schema": {"type": "object"}}}
    else:
        content = {operation.media: {"schema": {"type": "string"}}}
    described = _STREAM if operation.media == "text/event-stream" else operation.summary
    return {"description": described, "content": content}


def _failures(operation: Operation, components: Components, *, free: bool) -> dict[str, Any]:
    statuses = {*operation.failures, 403} | (set() if free else {401})
    if operation.query is not None or operation.body is not None:
        statuses.add(400)
    if operation.body is not None:
        statuses |= {408, 413, 415}
    content: dict[str, Any] = {"application/json": {"schema": components.of(ErrorAnswer)}}
    found: dict[str, Any] = {}
    for status in sorted(statuses):
        plain = operation.media == "text/plain" and status in operation.failures
        said = {"text/plain": {"schema": {"type": "string"}}} if plain else content
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": said}
    return found


def _path_parameters(path: str) -> list[dict[str, Any]]:
    found = []
    for where, name in re.findall(r"(\w+/\{(\w+)\})", path):
        schema = dict(_PATH_PARAMETERS[where])
        described = schema.pop("description")
        found.append(
            {"name": name, "in": "path", "required": True, "description": described, "schema": schema}
        )
    return found


def _query_parameters(query: type, components: Components) -> list[dict[str, Any]]:
    hints = hints_of(query)
    found = []
    for each in fields(query):
        said = keywords_of(each)
        described = said.pop("description", each.name)
        schema = components.of(hints[each.name])
        if "anyOf" in schema:  # a parameter that is not given is null
            schema = schema["anyOf"][0]
        found.append(
            {
                "name": each.name,
                "in": "query",
                "required": each.default is MISSING,
                "description": described,
                "schema": schema | said,
            }
        )
    return found
