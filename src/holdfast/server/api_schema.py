"""The OpenAPI description: our problem form in it, the token where it is needed, and which methods a path has."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import compile_path

_METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_PROBLEMS = {
    400: "Bad request",
    401: "No token",
    403: "Wrong origin",
    404: "Not there",
    409: "In the way",
    413: "Too large",
    415: "Not understood",
    421: "Wrong host",
    422: "Does not fit",
    500: "Failed",
    503: "Not available",
    504: "Too slow",
}
_REFERENCE = {"$ref": "#/components/schemas/Problem"}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {"application/problem+json": {"schema": _REFERENCE}}} for code, said in _PROBLEMS.items()
}
"""What every operation may answer besides what it is for."""


def describe(app: FastAPI, problem: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The description of the whole API, made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        made.setdefault("components", {}).setdefault("schemas", {}).update({**definitions, "Problem": problem})
        app.openapi_schema = made
    return app.openapi_schema


def allowed_methods(app: Any, path: str) -> list[str]:
    """The methods that a path has, over all routes."""
    described = app.openapi()["paths"].items()
    return sorted(
        {name.upper() for form, operations in described if compile_path(form)[0].match(path) for name in operations if name in _METHODS}
    )
