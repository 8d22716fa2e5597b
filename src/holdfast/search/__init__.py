"""Full text, vectors, late interaction, fusion and packing, used by the archive, memory and knowledge alike.

May import `text`, `config`, `durable` and what is below them.
Start with `fulltext.py`.
"""
