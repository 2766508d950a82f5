"""Convolutions, norms and attention that cuDNN computes, by family.

* cuDNN: ``executor/cuda/dnn.py`` describes convolutions, batch norms and attention as data;
  ``executor/cuda/cudnn.py`` times and keeps the plans of graphs that ``executor/cuda/cudnn_graphs.py``
  builds, ``executor/simulated/reference_dnn.py`` computes the same on the simulated GPU.
  ``executor/kernels/cudnn/support.py`` ``elsewhere`` finds who computes what the library declines.
  ``tests/executor/test_cudnn_offline.py`` builds a ResNet-50's graphs without a GPU.
"""
