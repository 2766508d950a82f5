"""Which part each process of a job plays, how workers meet, and how a job's processes are started.

Start at ``fleet.py`` ``Fleet``, from which ``collective.py`` and ``servers.py`` derive: they are what
``rowlock.fluid.incubate.fleet`` offers; ``fleet_2x.py`` chooses between them for ``rowlock.distributed.fleet``.
``training.py`` says what the strategies of both ask of an optimizer. ``roles.py`` finds out a process's part;
``rowlock.distributed.launch`` stands on ``jobs.py`` and ``processes.py``.
"""
