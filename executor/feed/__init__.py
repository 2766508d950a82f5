"""Values into and out of a step: feeds, readers, fetches, tensors and scopes.

Start at ``feeds.py``, which converts and checks, and ``splitting.py`` ``Splitter``, which gives places
their rows (``cuts.py``). Results come back through ``fetches.py`` ``Joined``. A ``Scope`` owns the user's
view of persistables.

* Persistables: one device scope per replica (``Replica.scopes``). The driver's scope is the user's view:
  ``executor/device/tensor.py`` pulls the newest value when it is read; writes are sent before the next step
  (``executor/driver/values.py`` ``DeviceValues``). In Reduce mode an optimizer's state lies
  at its owner only.
* Readers: a queue filled by one thread in ``executor/feed/reader.py`` ``Prefetch``; fronts in
  ``executor/loading/data_loader.py``; from samples to arrays in ``executor/loading/data_feeder.py``
  ``DataFeeder``. A program lists its own in ``Program.readers``.
"""
