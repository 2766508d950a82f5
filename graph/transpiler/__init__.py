"""Programs rewritten for trainers and parameter servers, and for trainers that meet in rings.

Start at ``distribute.py``, the face. ``placement.py`` says which server has which rows of which parameter;
``trainer.py``, ``server.py`` and ``server_startup.py`` write the programs from it, ``geo.py`` those of geo-SGD,
``collective.py`` those without servers. ``memory_optimize.py`` rewrites programs for less memory.
"""
