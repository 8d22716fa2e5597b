"""Workflows that are begun by the clock: kept in the database, so that every machine knows them and each is begun once (W17).

The session of a moment has a name that is made from it, so a worker that is killed while it begins one leaves nothing that begins it twice.
Moments that passed while no worker ran are made up for once, not one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import ExtraMissing, HoldfastError, InputError, NotThere, StoreUnavailable
from holdfast.session.state import check_session_id
from holdfast.workers.queue_events import ScheduleFailed
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow.agent import agent_errors, find_agents
from holdfast.workflow.workflow_file import load_workflow, parse_workflow

if TYPE_CHECKING:
    from holdfast.harness import Harness


class Schedules:
    """Keeps schedules, and begins what is due. Safe for many threads and processes."""

    def __init__(self, harness: Harness, queue: SessionQueue) -> None:
        self._harness = harness
        self._queue = queue

    def put(
        self,
        name: str,
        cron: str,
        file: str | Path,
        *,
        task: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        priority: int = 0,
        timezone: str = "UTC",
    ) -> datetime:
        """Keep a schedule, in place of one of this name, and give when it is due next. The workflow is checked, and kept as it is now."""
        check_session_id(f"{name}-20260101-000000")
        agents = self._harness.stage_agents((options or {}).get("model"))
        workflow = load_workflow(file, further=lambda sound: agent_errors(sound, agents))
        find_agents(workflow, agents)
        if not (task or workflow.task or "").strip():
            raise InputError(f"the workflow {workflow.id} has no task.", hint="Give one: `--task`, or `task:` in its file.")
        due = next_moment(cron, timezone, datetime.now(UTC))
        values: list[Any] = [name, cron, timezone, json.dumps(workflow.document()), str(Path(file).absolute()), task]
        values += [json.dumps(dict(parameters or {})), json.dumps(dict(options or {})), priority, due]
        with self._queue.database.transaction() as step:
            step.execute(self._queue.sql["put_schedule"], values)
        return due

    def remove(self, name: str) -> None:
        """Forget a schedule. The sessions that it began stay. NotThere if there is none of this name."""
        with self._queue.database.transaction() as step:
            if step.one(self._queue.sql["drop_schedule"], [name]) is None:
                known = ", ".join(row[0] for row in step.rows(self._queue.sql["schedules"]))
                raise NotThere(f"there is no schedule {name!r}.", hint=f"There are: {known}." if known else "There are none.")

    def begin_due(self) -> list[str]:
        """Begin what is due, each by one worker; the sessions that were begun."""
        begun = []
        while (session := self._begin_one()) is not None:
            begun.append(session)
        return begun

    def _begin_one(self) -> str | None:
        sql = self._queue.sql
        if self._queue.database.one("SELECT 1 FROM queue_schedules WHERE next_at <= clock_timestamp() LIMIT 1") is None:
            return None
        with self._queue.database.transaction() as step:
            row = step.one(sql["due_schedule"])  # locked until it is noted: nobody else begins it
            if row is None:
                return None
            name, cron, timezone, workflow, file, task, parameters, options, priority, due, now = row
            session = f"{name}-{due.astimezone(UTC):%Y%m%d-%H%M%S}"
            problem = None
            try:
                if not self._queue.store.exists(session):
                    definition = replace(parse_workflow(workflow, file=f"schedule {name}"), home=Path(file).parent if file else None)
                    launcher = self._harness.launcher(store=self._queue.store, model=options.get("model"))
                    given: dict[str, Any] = {"task": task, "parameters": parameters, "session_id": session}
                    self._queue.create(launcher, definition, priority=priority, options=options, **given)
            except StoreUnavailable:
                raise
            except HoldfastError as error:  # the next moment may go well; a schedule that cannot be begun keeps no other from it
                problem = str(error)[:2000]
                self._harness.bus.emit(ScheduleFailed(schedule=name, problem=problem))
            step.execute(sql["schedule_fired"], [next_moment(cron, timezone, now), now, session, problem, name])
        return session


def next_moment(cron: str, timezone: str, after: datetime) -> datetime:
    """The next moment of a cron expression (minute, hour, day, month, weekday) in a time zone. InputError for what is none."""
    try:
        croniter = import_module("croniter").croniter
    except ImportError as error:
        raise ExtraMissing("croniter", "workers") from error
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"there is no time zone {timezone!r}.", hint="Write it as Europe/Berlin, or UTC.") from error
    if len(cron.split()) != 5 or not croniter.is_valid(cron):
        raise InputError(f"{cron!r} is no schedule.", hint='Write minute, hour, day, month and weekday: "0 7 * * 1-5" is 7:00 on workdays.')
    found: datetime = croniter(cron, after.astimezone(zone)).get_next(datetime)
    return found.astimezone(UTC)
