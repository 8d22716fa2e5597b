"""O3: the API holds what its description says: schemathesis over every operation of a real server, with no operation left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.integration.server_bench import Served, serving

_NOT_IN_A_SCHEMA = [positive_data_acceptance]
"""Whether a workflow has an agent for each stage, whether there is something to undo: no JSON schema says it, and we answer with 400."""
_calls: list[int] = []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("schema"), {"knowledge": {"embedder": "none"}, "server": {"shutdown_seconds": 2}}) as running:
        yield running
    log = (running.base / "server.log").read_text()
    assert "request failed" not in log and "Traceback" not in log, log[-3_000:]
    assert len(_calls) > 100, "every operation was called"


@pytest.fixture(scope="module")
def described(served: Served) -> Any:
    schema = schemathesis.openapi.from_url(f"{served.address}/openapi.json", headers=served.headers)
    schema.config.phases.coverage.enabled = False
    return schema


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_the_api_holds_what_it_says(case: Any, served: Served) -> None:
    _called(case, served)


@pytest.mark.prove
@schema.parametrize()
@settings(max_examples=140, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_the_api_holds_what_it_says_ten_thousand_times(case: Any, served: Served, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--prove"):
        pytest.skip("the long version of the test above: `make prove`")
    _called(case, served)


def _called(case: Any, served: Served) -> None:
    """Streams are asked for what is there, else they would wait for more."""
    if case.path.endswith("/events"):
        case.query = {**(case.query or {}), "follow": "false"}
    answer = case.call(headers=served.headers, timeout=60)
    _calls.append(answer.status_code)
    case.validate_response(answer, excluded_checks=_NOT_IN_A_SCHEMA, headers=served.headers)
