"""What channels and collectives stand on: shared memory, futexes, sockets, proof of a secret."""
