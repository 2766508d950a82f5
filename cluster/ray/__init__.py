"""What is asked of Ray: a session, nodes, placement, actors.

Start at ``session.py``. ``member.py`` is the driver's handle of one actor, ``replica.py`` is that actor.
"""
