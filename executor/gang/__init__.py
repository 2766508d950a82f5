"""Replicas in lockstep: what a gang offers, how messages reach replicas, what follows a loss.

Start at ``gang.py`` ``Gang``. It owns a ``Delivery`` (``delivery.py``; threads stand here, Ray actors in
``cluster/``) and a ledger, from which ``recovery.py`` replaces lost replicas. ``launchers.py`` owns all
gangs.
"""
