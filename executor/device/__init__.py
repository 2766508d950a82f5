"""What kernels may use: arrays, scratch memory, streams, random numbers, a place; and tensors.

Start at ``device.py`` ``Device``. A ``DeviceScope`` owns the persistables of one replica.

* Ops on the host of a GPU (``device_guard``, or no kernel): ``graph/lowering/placement.py`` chooses them,
  and the places and copies of values; ``executor/device/host_device.py`` is that host as a device;
  persistables move in ``executor/device/device_scope.py`` ``migrate``.
* Random numbers: ``executor/device/philox.py``, a function of seed, output name, step and global sample
  index; a GPU draws the same ones (``executor/codegen/cuda_random.py`` ``bind_draws``).
"""
