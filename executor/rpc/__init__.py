"""What trainers and parameter servers say to each other, and how it gets there.

Start at ``messages.py``. A ``Service`` takes messages, a ``Wire`` carries them to it. What a server does with
them is ``executor/servers``'; sockets, actors and snapshots on disk are ``cluster/pserver``'s.
"""
