"""The pages of `holdfast serve`, for people who look rather than read logs: one module per area, each with a router.

`html_pages` renders: templates, filters, errors as a page. A page module reads through `Services`, makes plain values and hands
them to a template; what a person does comes back as a form, by POST, and is answered with a redirect. Everything works without a script;
with one, parts of a page follow what happens (htmx, server-sent events).
"""
