"""Gangs: replicas in lockstep, the messages that reach them, and recovery when one is lost.

Start at ``gang.py`` ``Gang``; what ``recovery.py`` mends of it is ``replicas.py`` ``Replicas``. It owns a
``Delivery`` (``delivery.py``; threads stand here, Ray actors in ``cluster/``) and a ledger, from which
``recovery.py`` replaces lost replicas. ``launchers.py`` owns all gangs. ``trainers.py`` has gangs of several
drivers (trainers) meet: a world is those that met; a ring has one place of each, and its programs' ops meet.

* A lost replica: ``RayDelivery._lost`` takes a closed line, ``RayDelivery._judge`` a silent one
  (``cluster/channel/heartbeat.py``); ``executor/gang/recovery.py`` decides what happened and what is run again;
  ``RayDelivery.replace`` brings another in, and ``Recovery._heal`` gives it values.
  ``tests/contract/strikes.py`` kills replicas at named points of it.
"""
