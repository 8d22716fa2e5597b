"""One module for each command of `holdfast`; each has an `app`, a typer program.

May import everything. They are thin: the work is done in the library, and shown by `output.py`.
Start with the list in `main.py`.
"""
