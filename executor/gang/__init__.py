"""Replicas in lockstep: what a gang offers, how messages reach replicas, what follows a loss.

Start at ``gang.py`` ``Gang``; what ``recovery.py`` mends of it is ``replicas.py`` ``Replicas``. It owns a
``Delivery`` (``delivery.py``; threads stand here, Ray actors in ``cluster/``) and a ledger, from which
``recovery.py`` replaces lost replicas. ``launchers.py`` owns all gangs.

* A lost replica: who is silent, and why, in ``cluster/channel/heartbeat.py`` and ``RayDelivery._judge``;
  what happened and what is done again in ``executor/gang/recovery.py``; who comes in in
  ``RayDelivery.replace``. ``tests/contract/strikes.py`` kills replicas at named points of it.
"""
