"""What a parameter server does with the messages of trainers, and a trainer with its send and recv ops.

Start at ``server.py`` ``ParameterServer.handle`` for the one, at ``trainer.py`` ``TrainerRun`` for the other;
what an executor does with their programs is in ``running.py``.

* A server owns its ``ServerState`` (``state.py``: what trainers wait for), the order of steps (``steps.py``:
  ``SyncSteps``, ``AsyncSteps``), how far trainers are (``progress.py``), and the programs of its optimize
  blocks (``updates.py``), which ``graph/transpiler/server_program.py`` ``ServerProgram`` reads out of a
  server's program.
* A trainer's program is read by ``graph/transpiler/exchange.py`` ``exchange_of``: what is left of it is an
  ordinary program, which a ``ParallelRun`` or ``LocalRun`` runs on any number of places; messages are the
  driver's, once a step, whatever the places are. Its ``Session`` (``session.py``) numbers the steps.
* Geo-SGD at the trainer: ``geo.py``. Servers and trainers on threads: ``local.py``; in processes:
  ``cluster/pserver``.
"""
