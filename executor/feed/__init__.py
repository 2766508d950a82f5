"""What goes into a step and what comes out: feeds, readers, fetches, tensors and scopes.

Start at ``feeds.py``, which converts and checks, and ``splitting.py`` ``Splitter``, which gives places
their rows. Results come back through ``fetches.py`` ``Joined``. A ``Scope`` owns the user's view of
persistables.
"""
