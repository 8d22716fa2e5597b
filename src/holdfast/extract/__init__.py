"""Choosing the sentences that carry a text or answer a question, always word for word and with their source.

May import `text`, `tokens`, `search` and what is below them. Start with `selection.py`, where it is also told whether a claim
is in a source; then `sentence_index.py`, which answers a question.
"""
