"""The switches that a user can set, and the errors and types that every room shares.

* Errors are one family in ``strategies/errors.py``; a replica that fails releases its peers (``abort``), the
  driver raises the first cause, and increments the epoch so that all begin afresh.
"""
