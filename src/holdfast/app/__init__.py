"""What people and other programs touch: the command line, and later the server, web pages and MCP.

May import everything; nothing in the library imports it.
Start with `main.py`.
"""
