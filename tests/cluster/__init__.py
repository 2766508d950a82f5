"""Everything that crosses a process, tried with real processes and hosts.

* Tests over hosts: ``tests/cluster/namespaces.py`` makes network namespaces with a Ray node each, to cut,
  slow and kill; ``tests/cluster/over_hosts.py`` holds the drivers that run inside.
  ``tests/cluster/jobs.py`` runs a job.
"""
