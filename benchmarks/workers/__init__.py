"""Contenders of ``benchmarks/rivals.py``: each runs in its own environment and does as it is told."""
