"""Gangs: replicas in lockstep, the messages that reach them, and recovery when one is lost.

Start at ``gang.py`` ``Gang``. Each piece of state has one owner:

* ``Delivery`` (``delivery.py``; threads here, Ray actors in ``cluster/``): living replicas, and their answers.
* ``Request``: how far some steps are. ``Ledger``: loaded programs, which replica alone has which value, the
  steps that are done, and which replicas are to be mended.
* ``Replicas`` (``replicas.py``): the turn, the epoch, the requests under way, and the ledger.
* ``Lockstep`` (``lockstep.py``), made of it: steps, begun and finished in order. It notices a loss, and leaves
  it to recovery. ``Gang``, made of that: programs, values and trainers, what users ask for.
* ``Recovery`` (``recovery.py``) keeps nothing: it mends ``Replicas`` once, or brings them to one step.

* ``Worlds`` (``worlds.py``): the groups that its replicas form with those of other trainers.

``launchers.py`` owns all gangs. Drivers that train together (``trainers.py``) meet (``meeting.py``): a world is
those that met; a ring has one place of each, and its programs' ops meet.

* A lost replica: ``RayDelivery._lost`` takes a closed line, ``RayDelivery._look_after`` a silent one
  (``cluster/ray/diagnosis.py`` ``Diagnosis``); ``executor/gang/recovery.py`` decides what happened and what is
  run again; ``RayDelivery.replace`` brings another in, and ``Recovery._heal`` gives it values.
  ``tests/contract/strikes.py`` kills replicas at named points of it.
"""
