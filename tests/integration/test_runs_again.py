"""W9, W18: a workflow that runs again, over the same documents or corrected ones, with what earlier runs left in long-term memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import build
from holdfast.config.loading import config_from_values
from holdfast.workflow.workflow_file import load_workflow

ROOT = Path(__file__).parents[2]
WORKFLOW = """
id: opening
task: When does the observatory reopen to visitors?
stages:
  - {name: research, agent_type: researcher, system_prompt: Find what the documents say., sources: {folder: docs}}
  - {name: report, agent_type: writer, system_prompt: Write the report.}
"""


def run(home: Path, workflow: Path) -> Any:
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(home)})) as harness:
        return harness.run_workflow(load_workflow(workflow))


def test_what_a_document_no_longer_says_is_not_in_the_next_report(tmp_path: Path) -> None:
    """W18: an earlier finding is no second source beside the document that it came from."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    page = tmp_path / "docs" / "visit.md"
    page.write_text("# Visits\n\nThe observatory reopens to visitors on 21 May 2026.\n")
    first = run(tmp_path / "home", tmp_path / "workflow.yaml")
    assert first.status == "completed" and "21 May 2026" in str(first.stage_outputs["research"])
    page.write_text("# Visits\n\nThe observatory reopens to visitors on 14 May 2026.\n")
    second = run(tmp_path / "home", tmp_path / "workflow.yaml")
    assert second.retrieved, "the earlier finding was retrieved"
    said = str(second.stage_outputs)
    assert "14 May 2026" in said and "21 May 2026" not in said


@pytest.mark.timeout(300)
def test_the_example_of_a_discussion_runs_twice(tmp_path: Path) -> None:
    """W12, W18: a memory that the stage was given and also finds is one source, not two of the same name."""
    for _ in range(2):
        session = run(tmp_path, ROOT / "examples" / "discussion" / "workflow.yaml")
        assert session.status == "completed", session.error
