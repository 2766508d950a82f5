"""The compiler's data: a frozen graph, and the replica program it becomes.

Start at ``reader.py`` ``from_program`` and ``replica_program.py`` ``lower``.

* Ops that hold blocks, and arrays of tensors, are read by ``branches.py``, ``recurrent.py``, ``loops.py`` and
  ``arrays.py`` as if their ops stood in block 0; ``block_reader.py`` says what they share.
* Sequences (LoD): offsets are values of their own beside what they cut (``graph/ir/sequences.py``). An op says
  which its results have (``graph/ops/lod.py``), and reads those of X as X@LOD.
* A loop whose rounds only a step tells is a node with a program of its own (``data_loops.py``), and arrays of
  tensors are values then (``host_calls.py``).
* Shapes that depend on elements: ``graph/ir/known_values.py`` says which must be known before a step, and
  ``graph/ir/segments.py`` cuts a step where they are not, and around loops and arrays.
"""
