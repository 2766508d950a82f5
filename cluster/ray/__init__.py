"""What is asked of Ray: a session, nodes, placement, actors.

Start at ``session.py``. ``replica_handle.py`` is the driver's handle of an actor, ``replica.py`` the actor.

* Places of a cluster: ``cluster/ray/nodes.py`` numbers nodes by address and deals places over them
  (``assign_nodes``); ``cluster/ray/placement.py`` ``plan`` does it as ``strategies/cluster.py`` says, without
  Ray, and ``reserve`` holds the result.
* Actors for a gang's ranks, spares, and those that come for lost ones: ``cluster/ray/actor_pool.py``.
* What became of a replica that does not answer: ``cluster/ray/diagnosis.py`` ``Diagnosis``.
* On which cores a replica runs: ``cluster/ray/pinning.py`` ``PinPolicy``.
"""
