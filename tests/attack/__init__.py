"""Kills, interrupts, strangers and damaged files, at random moments, beside an undisturbed run.

* Attacks: ``tests/attack/kills.py`` kills replicas at the points of ``tests/attack/strikes.py`` and
  ``inside.py`` and compares bit by bit; interrupts, threads, strangers, caches and frames are beside it.
  Promises and figures: ``docs/reliability.md``. ## Not built yet Sparse gradients; ops that compute on
  sequences; control flow. A strategy field that would need one of these is refused or listed by
  ``explain()``.
"""
