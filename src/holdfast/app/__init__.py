"""What people and other programs touch: the command line, and what it serves by MCP and ACP.

May import everything; nothing in the library imports it.
Start with `main.py`.
"""
