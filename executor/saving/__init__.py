"""What programs compute with, in files and out of them.

``variables.py`` saves and loads variables of a scope, ``models.py`` a pruned program with its parameters,
``states.py`` arrays by name. Files are replaced by ``files.py``: all of them, or none. What bytes mean is
in ``graph/program/formats``.

* Files of Paddle's: what bytes mean is in ``graph/program/formats/`` (``graph/program/formats/program.py``
  ``describe`` and ``build``, over the messages of ``messages.py``; ``graph/program/formats/tensors.py``
  ``TensorFile``; ``graph/program/formats/state_reader.py`` ``read_state`` follows pickles without running
  them), what is saved from and loaded into scopes in ``executor/saving/`` (``executor/saving/files.py``
  ``replacing`` makes it all or nothing). ``graph/program/formats/executable.py`` ``computed_ops`` refuses
  to run what is not built. Files that Paddle wrote, and the scripts that made them, are in
  ``tests/reference/formats/``; ``tests/graph/test_damaged_files.py`` mutates them.
"""
