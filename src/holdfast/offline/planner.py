"""The planner without a model: the task's own words, split into questions that sources can answer (W18)."""

from __future__ import annotations

from holdfast.errors import InputError
from holdfast.offline.planning import MOST_QUESTIONS, split_task
from holdfast.offline.questions import TaskQuestion, questions_json
from holdfast.offline.settings import whole_number
from holdfast.session.output import StageOutput
from holdfast.workflow.agent import StageRequest, StageResult


class Planner:
    """Splits the task into questions. Setting: `max_questions` (40)."""

    def run(self, request: StageRequest) -> StageResult:
        most = whole_number(request.stage, "max_questions", MOST_QUESTIONS)
        questions = split_task(request.task, most=most)
        if not questions:
            raise InputError(
                "the task holds no words to ask about.", hint='Say what to find out, for example `--task "Compare A and B on price."`.'
            )
        request.emit(f"{len(questions)} questions")
        return StageResult(output=_output(request.stage.name, questions))


def _output(stage: str, questions: list[TaskQuestion]) -> StageOutput:
    things = list(dict.fromkeys(one.item for one in questions if one.item))
    topics = list(dict.fromkeys(one.topic for one in questions if one.kind == "aspect"))
    compared = f" It compares {len(things)} things ({', '.join(things)}) in {len(topics)} respects." if len(things) > 1 else ""
    count = "one question" if len(questions) == 1 else f"{len(questions)} questions"
    return StageOutput(
        stage,
        f"The task was split into {count} by its own words; nothing was generated.{compared}",
        confidence="high" if len(things) > 1 or len(questions) > 1 else "medium",
        next_stage_recommendations=tuple(f"Find out: {one.text}" for one in questions),
        data={"questions": questions_json(questions), "method": "extraction"},
    )
