"""Save the values and programs of scopes to files, and load them.

``variables.py`` saves and loads variables of a scope, ``models.py`` a pruned program with its parameters,
``states.py`` arrays by name, ``programs.py`` a program's variables by kind. ``files.py`` replaces files: all of
them, or none. ``graph/program/formats`` reads and writes their bytes.

* Paddle's files: bytes are read and written in ``graph/program/formats/``
  (``graph/program/formats/program.py`` ``describe`` and ``build``, over the messages of ``messages.py``;
  ``graph/program/formats/tensors.py`` ``TensorFile``; ``graph/program/formats/state_reader.py`` ``read_state``
  follows pickles without running them), scopes are saved and loaded in ``executor/saving/``
  (``executor/saving/files.py`` ``replacing`` makes it all or nothing). ``graph/program/formats/executable.py``
  ``computed_ops`` refuses to run ops that are not built. Files that Paddle wrote, and the scripts that wrote
  them, are in ``tests/reference/formats/``; ``tests/graph/test_damaged_files.py`` mutates them.
"""
