"""Which part each process of a job plays, how workers meet, and how a job's processes are started.

Start at ``roles.py``: ``rowlock.fluid.incubate.fleet`` stands on it. ``rowlock.distributed.launch`` on
``jobs.py`` and ``processes.py``.
"""
