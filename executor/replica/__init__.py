"""One copy of a program that answers messages, in a thread or in a Ray actor.

Start at ``replica.py`` ``Replica.handle``. What it is asked and answers is in ``orders.py``, how a program is
run in ``options.py`` ``RunOptions``. It is a ``StepRunner`` (``steps.py``), which runs steps of what it has:
``Holdings`` (``holdings.py``), device scopes and loaded programs, whose plans are bound there. A loaded program
(``loaded.py``) owns its plans (``plan_cache.py``), and what runs between these: loops and arrays of tensors
(``host_call.py``).

* What ranks must agree on: ``ReplicaProgram.schedule`` (a hash of the plan at hand, compared when it is
  loaded and at every collective) and the step, as one number and in words in
  ``executor/replica/agreement.py``. ``tests/contract/mutants.py`` makes wrong plans,
  ``tests/contract/crews.py`` runs replicas over each kind of group without a driver.
"""
