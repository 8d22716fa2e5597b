"""What the user wrote in `config.yaml`: reading, checking, upgrading, and saying where each setting came from.

May import `errors`, `events`, `clock` and `validation`, and nothing else of ours; it writes no files.
Start with `loading.py`; the sections are in `sections.py`, and how one behaves is in `section.py`.
"""
