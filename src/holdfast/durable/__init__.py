"""Files, logs, blobs, locks, databases and folders that survive a crash, a power cut and many writers.

May import `errors`, `events`, `clock` and `validation`, and nothing else of ours.
Start with `disk.py`, the seam below everything here; then `replace.py`, the idiom in five lines.
"""
