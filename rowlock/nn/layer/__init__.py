"""``paddle.nn``'s layers: a function with its parameters and arguments. Start with ``layers.py``."""
