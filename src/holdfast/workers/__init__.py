"""Many machines: sessions that wait in PostgreSQL and are advanced by workers, on the queue of procrastinate (W17).

It stands on the harness and on the session store's database; neither the runner nor any room below knows of it. Begin with
`session_queue.py` (what is promised to whoever queues a session) and `queue_worker.py` (the process that works through it).
"""
