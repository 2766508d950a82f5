"""From a graph to kernels and memory: back ends, layouts, places, one arena.

Start at ``select.py``. ``memory.py`` ``plan_memory`` says where each value lies.
"""
