"""The step channel: frames, a connection to each replica, shared memory for feeds, heartbeats.

Start at ``channel.py`` ``Channels``, which owns a ``ReplicaConnection`` to each replica, and for those of the
driver's host one ``near.py`` ``NearReplicas``: the memory in which a step is written, begun and answered for
all of them at once. The replica's end is ``connection.py`` ``ReplicaServer``. They wait for each other
in the way that ``waits.py`` ``WaitChoice`` found to take less time.
"""
