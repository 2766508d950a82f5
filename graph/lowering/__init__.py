"""Chooses back ends, layouts and places for a graph's nodes, and plans the arena in which values lie.

Start at ``select.py`` ``select_kernels``; ``memory.py`` ``plan_memory`` plans the arena.
"""
