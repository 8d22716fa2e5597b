"""What a test of an agent needs: a scripted model, a clock whose hands you turn, a disk that crashes on demand.

Public, and used by our own tests; may import everything but `app`.
Start with `models.py`.
"""
