"""One copy of a program that answers messages, in a thread or in a Ray actor.

Start at ``replica.py`` ``Replica.handle``. A replica owns device scopes and loaded programs
(``loaded.py``); these own their plans.
"""
