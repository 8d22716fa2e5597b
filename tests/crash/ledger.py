"""A process that writes files, a log, blobs and a database for ever, and a ledger of what it began and what it acknowledged."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

from holdfast.durable.append import AppendLog
from holdfast.durable.database import open_database, transaction
from holdfast.durable.replace import Blobs, blob_id, read_json, replace_json

__all__ = ["Ledger", "body", "parse", "work"]

SCHEMA = ["CREATE TABLE rows (n INTEGER PRIMARY KEY)"]


def body(number: int) -> dict[str, object]:
    return {"n": number, "text": "x" * (number % 7 * 3000)}


def work(base: Path, first: int, seed: int, pipe: int) -> None:
    """Write for ever. Each line on the pipe says what is begun (`-`) and what is done (`+`)."""
    choose = random.Random(seed)
    log, blobs, database = AppendLog(base / "log.jsonl"), Blobs(base / "raw"), open_database(base / "store.db", migrations=SCHEMA)
    number = first
    while True:
        number += 1
        way = choose.choice("flbd")
        os.write(pipe, f"- {way} {number}\n".encode())
        if way == "f":
            replace_json(base / "file.json", body(number))
        elif way == "l":
            log.append(body(number))
        elif way == "b":
            blobs.put(str(body(number)).encode())
        else:
            with transaction(database):
                database.execute("INSERT INTO rows VALUES (?)", [number])
        os.write(pipe, f"+ {way} {number}\n".encode())


def parse(lines: list[str]) -> list[tuple[str, str, int]]:
    """What was said on the pipe. A last line that was cut short was not said."""
    return [(sign, way, int(number)) for sign, way, number in (line.split() for line in lines if line.endswith("\n"))]


class Ledger:
    """What was begun and what was acknowledged, over all runs on one folder."""

    def __init__(self) -> None:
        self.begun: dict[str, list[int]] = {way: [] for way in "flbd"}
        self.done: dict[str, list[int]] = {way: [] for way in "flbd"}

    def hear(self, lines: list[tuple[str, str, int]]) -> None:
        for sign, way, number in lines:
            if way in self.begun:
                (self.begun if sign == "-" else self.done)[way].append(number)

    def faults(self, base: Path) -> list[str]:
        said = []
        last = self.done["f"][-1:] or [0]
        with suppress(FileNotFoundError):
            found = read_json(base / "file.json")
            if found != body(found["n"]) or found["n"] < last[0] or found["n"] not in self.begun["f"]:
                said.append(f"the file holds {found['n']}, acknowledged was {last[0]}")
            last = [0]
        if last != [0]:
            said.append("the file is gone")
        reading = AppendLog(base / "log.jsonl").read()
        said += self.compare("l", [record["n"] for record in reading.records if record == body(record["n"])], "log")
        if any(not damage.tail for damage in reading.damage):
            said.append(f"the log is torn in the middle: {reading.damage}")
        blobs = Blobs(base / "raw")
        keys = {blob_id(str(body(number)).encode()): number for number in self.begun["b"]}
        said += self.compare("b", sorted(keys[key] for key in blobs.list() if blobs.get(key)), "blobs")
        database = open_database(base / "store.db", migrations=SCHEMA)
        said += self.compare("d", [n for (n,) in database.execute("SELECT n FROM rows ORDER BY n")], "database")
        database.close()
        return said

    def compare(self, way: str, found: list[int], what: str) -> list[str]:
        lost, foreign = set(self.done[way]) - set(found), set(found) - set(self.begun[way])
        return [f"{what}: lost {sorted(lost)}, never written {sorted(foreign)}"] if lost or foreign or sorted(found) != found else []
