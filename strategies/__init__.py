"""What may be chosen: the switches a user can set, and the errors and types that every room shares.

* What went wrong: errors are one family in ``strategies/errors.py``; a replica that fails releases its
  peers (``abort``), the driver raises the first cause, and counts an epoch up so that all begin afresh.
"""
