"""Samples on their way to a feed: data sets, samplers, worker processes, loaders, ``DataFeeder``.

Start at ``data_loader.py`` for the readers of ``fluid.io``, at ``dataset_loader.py`` for
``paddle.io.DataLoader``.

* Data sets and loaders of ``paddle.io``: ``executor/loading/datasets.py``,
  ``executor/loading/samplers.py``; from samples to batches in ``executor/loading/collate.py``;
  ``executor/loading/dataset_loader.py`` ``DatasetLoader`` reads them here or by the processes of
  ``executor/loading/workers.py`` ``Crew``.
* Files of text that a command may write: ``executor/loading/dataset_base.py`` says which and how,
  ``executor/loading/file_datasets.py`` reads them, ``executor/loading/multi_slot.py`` parses their lines.
"""
