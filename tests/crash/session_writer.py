"""A process for `test_session_kill.py`: runs a session for ever in small steps and says on a pipe what was acknowledged."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace

from holdfast.errors import InputError
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, StageRecord, stage_files
from holdfast.workflow.run_settings import file_sessions


def main(folder: str, seed: int) -> None:
    choose = random.Random(seed)
    store = file_sessions(folder)
    with store.lease("run", owner=f"writer-{seed}"):
        try:
            session = store.load("run")
        except InputError:
            session = store.create(Session("run", task="for ever"))
        say(f"c {session.revision}")
        while True:
            name = f"s{session.revision}"
            output = StageOutput(name, f"revision {session.revision + 1} " * choose.randrange(1, 400))
            kept = dict(list(session.stage_outputs.items())[-20:]) | {name: output}
            session = store.commit(
                replace(session, completed_stages=tuple(kept), stage_outputs=kept, stages={name: StageRecord("completed")}),
                expect=session.revision,
                files=stage_files(session.revision, name, context="given", output=output.summary),
            )
            say(f"c {session.revision}")
            if choose.random() < 0.5:
                store.checkpoint(session, f"p{session.revision}")
                say(f"p {session.revision}")
            if choose.random() < 0.3:
                store.raw_put("run", f"raw of {session.revision}".encode() * choose.randrange(1, 3000), source="here")
                say(f"r {session.revision}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
