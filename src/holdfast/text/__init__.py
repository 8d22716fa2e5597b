"""Words, sentences, stems, stop words, dates, likeness and secrets: pure functions over text.

May import `config`, `durable` and what is below them.
Start with `words.py`.
"""
