"""What programs compute with, in files and out of them.

``variables.py`` saves and loads variables of a scope, ``models.py`` a pruned program with its parameters,
``states.py`` arrays by name. Files are replaced by ``files.py``: all of them, or none. What bytes mean is
in ``graph/program/formats``.
"""
