"""Samples on their way to a feed: data sets, samplers, worker processes, loaders, ``DataFeeder``.

Start at ``data_loader.py`` for the readers of ``fluid.io``, at ``dataset_loader.py`` for
``paddle.io.DataLoader``.
"""
