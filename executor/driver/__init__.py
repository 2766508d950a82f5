"""One program on the replicas of a gang, as the driver sees it: compile, check, send, join, report.

Start at ``parallel.py`` ``ParallelRun``. It owns the compiled variants of a program (``version.py``) and
the steps in flight (``future.py``); the gang and the values on its devices (``values.py``) it shares with
other programs.
"""
