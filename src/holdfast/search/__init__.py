"""Full text, vectors, late interaction and fusion, used by the archive, memory and knowledge alike.

May import `text`, `config`, `durable` and what is below them.
Start with `fulltext.py`, the index of the archive; and with `ranking.py`, how a knowledge store ranks, then `embedding.py`.
"""
