"""The gateway: clients of other APIs get a window that never overflows and a history that loses nothing, by their base address alone (O3).

`client_request.py` says when two messages are the same, `thread_index.py` finds the thread that a request goes on with, `gateway_core.py`
runs the turn, `chat_wire.py`, `responses_wire.py` and `messages_wire.py` speak the three forms.
Start reading in `gateway_core.py: Gateway.turn`.
"""
