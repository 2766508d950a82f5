"""Everything that computes a program: places, feeds, gangs of replicas, plans, kernels, devices."""
