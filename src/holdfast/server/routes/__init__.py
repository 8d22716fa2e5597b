"""The operations of the API, one module for each area. A route reads its request, asks the library, and answers with plain values.

They import `server/services.py`, `server/wire.py` and what is below, never each other. Start reading in `memory_api.py`.
"""
