"""One module for each heading of `holdfast`; each has an `app`, a typer program.

May import everything. They are thin: the work is done in the library, and shown by `app/output.py`.
Start with the list in `app/main.py`.
"""
