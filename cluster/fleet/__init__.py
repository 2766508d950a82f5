"""Which part each process of a job plays, how workers meet, and how a job's processes are started.

Start at ``fleet.py`` ``Fleet``, from which ``collective.py`` and ``servers.py`` derive: they are what
``rowlock.fluid.incubate.fleet`` offers. ``roles.py`` finds out a process's part; ``rowlock.distributed.launch``
stands on ``jobs.py`` and ``processes.py``.
"""
