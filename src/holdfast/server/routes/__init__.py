"""The operations of the API, one module for each area. A route reads its request, asks the library, and answers with a value of `server/wire.py`.

They import `server/services.py` and what is below it, never each other. Start reading in `memory_api.py`.
"""
