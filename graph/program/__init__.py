"""Programs as users build them, and as Paddle's files hold them (``formats/``).

Start at ``program.py`` ``Program``: it owns blocks, a block its operators and variables.
"""
