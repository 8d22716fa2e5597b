"""A process that adds records to a knowledge store: `python knowledge_writer.py '[source, settings]' NAME COUNT`."""

from __future__ import annotations

import json
import sys

from holdfast.knowledge.adapters import open_knowledge
from holdfast.knowledge.records import Record

if __name__ == "__main__":
    source, settings = json.loads(sys.argv[1])
    name, count = sys.argv[2], int(sys.argv[3])
    with open_knowledge(source, **settings) as store:
        store.stats()
        print("ready", flush=True)
        sys.stdin.readline()  # so that all writers begin at once
        for number in range(count):
            own = Record(f"Writer {name} wrote line {number}.", session=name, position=number)
            store.add([Record(f"Both of them wrote line {number}.", tags=(name,)), own])
