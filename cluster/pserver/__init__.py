"""Parameter servers as Ray actors named by their endpoint, and the sockets between them and trainers.

Start at ``launcher.py``, what ``ClusterConfig(launcher="ray")`` means for servers.

* A server: ``hosting.py`` ``HostedServer``, in the process that ran its program, starts ``actor.py``
  ``ServerActor``, moves values there (``moving.py``), and starts another from ``snapshots.py`` when it is lost.
  ``message_server.py`` hands messages to the service.
* A trainer: ``wire.py`` ``SocketWire`` finds servers by endpoint, and repeats what a restored one forgot.
* Both: ``connection.py`` carries ``codec.py``'s messages, and ``receiver.py`` reads arrays where they belong.
  On one host they lie in memory that both ends share (``segments.py``).
* ``topology.py`` ``launch``: all of it from one driver.
"""
