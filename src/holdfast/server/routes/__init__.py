"""The operations of the API and the pages of `holdfast serve`: for each area its routes, and its pages beside them or in the same module.

A route reads its request, asks the library through `Services`, and answers with plain values; a page hands such values to a template
(`html_pages.py`). What a person does there comes back as a form, by POST, and is answered with a redirect. Everything works without a
script; with one, parts of a page follow what happens (htmx, server-sent events). Start reading in `memory_routes.py`.
"""
