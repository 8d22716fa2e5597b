"""Where state is kept: documents with marks, append logs, blobs and leases, behind one seam with three implementations.

May import `durable`, `events`, `clock` and `errors`; never a room that keeps something here.
Start with `backend.py`, the promises; then `in_memory.py`, the shortest implementation; then `files.py` and
`postgres_backend.py`. Written once above it: `scrub.py` (forgetting).
"""
