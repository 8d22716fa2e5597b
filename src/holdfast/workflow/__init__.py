"""Running stages one after the other so that a kill at any moment loses nothing.

May import the three layers (`context`, `memory`, `knowledge`, `session`) and what is below them.
Nothing is built here yet.
"""
