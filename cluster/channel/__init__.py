"""The step channel: frames, a connection to each replica, shared memory for feeds, heartbeats.

Start at ``channel.py`` ``Channels``, which owns a ``ReplicaConnection`` to each replica. The replica's end is
``connection.py`` ``ReplicaServer``.
"""
