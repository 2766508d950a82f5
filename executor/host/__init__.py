"""Resources of this host: memory, cores, and a folder for compiled code.

* ``executor/host/disk_cache.py`` ``DiskCache`` alone writes the results of compilers and tuners to disk, and
  checks that they can be trusted.
"""
