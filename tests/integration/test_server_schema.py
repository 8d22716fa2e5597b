"""O3: the API holds what its description says: schemathesis over every operation of a real server, with no operation left out."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.conftest import Effort
from tests.integration.server_bench import Served, serving

_NOT_IN_A_SCHEMA = {
    "whether it is known already": ["POST /api/v1/memory/facts"],
    "whether it tells a secret": ["PUT /api/v1/memory/slots/{slot}"],
    "whether it is so short that almost everything holds it": ["POST /api/v1/memory/forget"],
    "whether anything is changed by it": ["PATCH /api/v1/memory/facts/{id}"],
    "whether there is something to undo, to go on with, to decide": [
        "POST /api/v1/memory/undo",
        "POST /api/v1/threads/{id}/resume",
        "POST /api/v1/threads/{id}/decisions",
    ],
    "whether a workflow has an agent for each stage, and sessions are where workers find them": [
        "POST /api/v1/sessions",
        "POST /api/v1/queue",
    ],
    "what others say about their own APIs": [
        "POST /v1/chat/completions",
        "POST /v1/responses",
        "POST /v1/messages",
        "POST /v1/messages/count_tokens",
    ],
    "whether there is a new message in it": ["POST /agui", "POST /agui/{agent}"],
}
"""What no JSON schema says, and is answered with 400 or 409: of these operations alone, and of no other, data that fit may be refused."""
_MAY_REFUSE = frozenset(label for labels in _NOT_IN_A_SCHEMA.values() for label in labels)


@pytest.mark.prove
def test_the_api_holds_what_it_says(tmp_path: Path, effort: Effort) -> None:
    """O3: no server error, every answer fits the description, and what fits it is taken. 10,000 calls in `make prove`."""
    examples = effort(4, 140)
    statuses: Counter[int] = Counter()
    settled = {"knowledge": {"embedder": "none"}, "server": {"shutdown_seconds": 2}}
    with serving(tmp_path, settled) as served:
        schema = schemathesis.openapi.from_url(f"{served.address}/openapi.json", headers=served.headers)
        every: Any = schema.get_all_operations()
        operations = [found.ok() for found in every]
        for operation in operations:
            try:
                _called(operation, served, examples, effort.seed, statuses)
            except FailureGroup as failures:
                for failure in failures.exceptions:
                    effort.fail(f"{operation.label}: {str(failure)[:400]}")
            except AssertionError as failure:
                effort.fail(f"{operation.label}: {str(failure)[:400]}")
    log = (tmp_path / "server.log").read_text()
    assert "request failed" not in log and "Traceback" not in log, log[-3_000:]
    effort.runs = sum(statuses.values())  # calls
    assert {operation.label for operation in operations} >= _MAY_REFUSE
    assert len(operations) > 70 and sum(statuses.values()) >= len(operations) * min(examples, 2) * 0.9
    assert not [status for status in statuses if status >= 500]


def _called(operation: Any, served: Served, examples: int, number: int, statuses: Counter[int]) -> None:
    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def call(case: Any) -> None:
        if case.path.endswith("/events"):  # streams are asked for what is there, else they would wait for more
            case.query = {**(case.query or {}), "follow": "false"}
        answer = case.call(headers=served.headers, timeout=240)
        statuses[answer.status_code] += 1
        unchecked = [positive_data_acceptance] if operation.label in _MAY_REFUSE else []
        case.validate_response(answer, excluded_checks=unchecked, headers=served.headers)

    call()


def test_what_is_kept_is_answered_in_the_form_that_is_described(tmp_path: Path) -> None:
    """O3: a client that is made from the description knows the fields of facts, records, conversations, runs and sessions."""
    workflow = {"id": "tea", "task": "What does tea cost?", "stages": [{"name": "plan", "agent_type": "planner"}]}
    with serving(tmp_path, {"knowledge": {"embedder": "none"}}) as served, served.client() as api:
        described = api.get("/openapi.json").json()

        def fits(method: str, form: str, path: str | None = None, **body: Any) -> Any:
            answer = api.request(method, path or form, **body)
            assert answer.is_success, answer.text
            responses = described["paths"][form][method.lower()]["responses"]
            schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
            assert schema["$ref"] != "#/components/schemas/Page", f"{form} says nothing of what is in it"
            jsonschema.validate(answer.json(), {**schema, "components": described["components"]})
            return answer.json()

        fact = fits("POST", "/api/v1/memory/facts", json={"content": "Likes oysters"})["id"]
        fits("GET", "/api/v1/memory/facts")
        fits("PATCH", "/api/v1/memory/facts/{id}", f"/api/v1/memory/facts/{fact}", json={"content": "Likes mussels"})
        fits("GET", "/api/v1/memory/facts/{id}", f"/api/v1/memory/facts/{fact}")
        assert fits("GET", "/api/v1/memory/history")["items"] and fits("GET", "/api/v1/memory/rendered")["facts"]
        fits("POST", "/api/v1/memory/undo", json={})
        record = fits("POST", "/api/v1/knowledge/records", json={"text": "Tea costs 1.90."})["record"]["id"]
        fits("GET", "/api/v1/knowledge/records/{id}", f"/api/v1/knowledge/records/{record}")
        assert fits("GET", "/api/v1/knowledge/records")["items"]
        assert fits("POST", "/api/v1/knowledge/search", json={"query": "tea"})["items"]
        thread = fits("POST", "/api/v1/threads", json={"title": "Tea"})["id"]
        at = f"/api/v1/threads/{thread}"
        run = fits("POST", "/api/v1/threads/{id}/runs", f"{at}/runs", json={"content": "What does tea cost?"})["id"]
        while fits("GET", "/api/v1/runs/{id}", f"/api/v1/runs/{run}")["status"] in ("queued", "running"):
            time.sleep(0.05)
        assert fits("GET", "/api/v1/threads")["items"] and fits("GET", "/api/v1/threads/{id}", at)
        assert fits("GET", "/api/v1/threads/{id}/messages", f"{at}/messages")["items"]
        assert fits("GET", "/api/v1/threads/{id}/runs", f"{at}/runs")["items"]
        session = fits("POST", "/api/v1/sessions", json={"workflow": workflow})["id"]
        fits("GET", "/api/v1/sessions/{id}", f"/api/v1/sessions/{session}")
        assert fits("GET", "/api/v1/sessions")["items"] and fits("GET", "/api/v1/doctor")["items"]
        assert fits("GET", "/api/v1/budget")["window"] and fits("GET", "/readyz")["ready"]
