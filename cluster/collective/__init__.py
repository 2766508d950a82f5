"""How the replicas' arrays meet: groups of ranks on one host, joined by shared memory."""
