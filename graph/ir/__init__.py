"""What is compiled: a frozen graph, and the replica program it becomes.

Start at ``graph.py`` ``from_program`` and ``replica_program.py`` ``lower``.
"""
