"""The compiler's data: a frozen graph, and the replica program it becomes.

Start at ``reader.py`` ``from_program`` and ``replica_program.py`` ``lower``.

* Sequences (LoD) live on the driver: ``graph/ir/lod.py`` finds the fed variable whose sequences a fetch has.
"""
