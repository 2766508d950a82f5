"""What a kernel may use: arrays, scratch memory, streams, random numbers, a place; and tensors.

Start at ``device.py`` ``Device``. A ``DeviceScope`` owns the persistables of one replica.
"""
