"""Holdfast over HTTP: an API over everything that the library has, and a gateway that speaks the APIs of others (O3).

It imports the harness and what is below, and FastAPI and uvicorn, which the extra `server` installs; only the command line imports it.
Start reading in `http_server.py: make_app`; `services.py` has what the routes work with, `gateway/` speaks the APIs of others.
"""
