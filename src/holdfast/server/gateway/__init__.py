"""The gateway: clients of other APIs get a window that never overflows and a history that loses nothing, by their base address alone (O3).

`client_request.py` says when two messages are the same and finds the thread that a request goes on with, `gateway_core.py` runs the turn,
`dialects.py` speaks the three forms of `/v1`, `agui_events.py` speaks AG-UI.
Start reading in `gateway_core.py: Gateway.turn`.
"""
