"""Learning-rate schedules that live in the user's script (Paddle 2.x): ``step()`` moves them on.

Before each run the executor calls the schedule and writes the rate to the program's learning-rate variable.
Start at ``base.py``; a user's own schedule derives from ``LRScheduler`` and defines ``get_lr``.
"""
