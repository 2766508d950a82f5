"""What this host has: memory, cores, and a folder for compiled code.

* What compilers and tuners made lies on disk: ``executor/host/disk_cache.py`` ``DiskCache`` alone writes
  and trusts it.
"""
