"""Which chat model is used, how it is made, and what it can be asked: providers, OpenAI-compatible servers, GGUF files on this machine.

May import `tokens`, `search`, `text` and what is below them, and LangChain; never a room that uses models.
Start with `factory.py`; then `choice.py`, which picks one.
"""
