"""Choosing the sentences that carry a text or answer a question, always word for word and with their source.

May import `text`, `tokens`, `search` and what is below them. Start with `selection.py`; then `sentence_index.py`, which
answers a question, and `passages.py`, whether a claim is in a source.
"""
