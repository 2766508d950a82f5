"""All-reduce of float32 between two processes: ours, gloo's, and the same bytes merely copied. Prints a table.

Run with OMP_NUM_THREADS=1, on a machine with two cores to spare. gloo is used through torch: give
``--torch-python PATH`` of an interpreter that has it, or install it here; without, its column stays empty.
``--hosts`` also measures between two network namespaces joined by a virtual cable (Linux, root).
Times are medians in microseconds over rounds in which the systems take turns, so that a noisy neighbour
disturbs them alike. "copy" is what each process needs to copy as many bytes, both at once.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import uuid

import numpy as np

SIZES = [128, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 10 << 20, 44 << 20, 64 << 20]
SECRETS = [b"a" * 32, b"b" * 32]
NAMESPACES = ["rlk-bench0", "rlk-bench1"]
ADDRESSES = ["10.77.7.1", "10.77.7.2"]
SYSTEMS = ["rowlock", "gloo", "copy"]


def repeats(nbytes):
    return 300 if nbytes <= 1 << 17 else 60 if nbytes <= 1 << 20 else 12


def measured(rank, call, arrays):
    """Return the times of each size, in microseconds, as this rank sees them."""
    times_by_size = {}
    for nbytes, array in arrays:
        times = []
        for _ in range(repeats(nbytes) + 3):
            array[:1] = 1
            start = time.perf_counter()
            call(array)
            times.append(1e6 * (time.perf_counter() - start))
        times_by_size[nbytes] = times[3:]
    return times_by_size


def rowlock(rank, where, name):
    from rowlock.cluster.collective.connector import Address
    from rowlock.cluster.collective.group import SharedMemoryGroup
    from rowlock.cluster.collective.hosts import HostsGroup
    from rowlock.cluster.collective.inter_host import InterHostTransport

    if where is None:
        group = SharedMemoryGroup(name, rank, 2)
    else:
        port = int(name)
        listener = socket.create_server((where[rank], port))
        addresses = [Address(host, port, key) for host, key in zip(where, SECRETS, strict=True)]
        group = HostsGroup(
            rank, [[0], [1]], None, InterHostTransport(rank, addresses, listener, 30)
        )
    arrays = ((nbytes, group.buffer(nbytes).view("float32")) for nbytes in SIZES)
    seconds = measured(rank, group.all_reduce, arrays)
    group.barrier()
    group.close()
    return seconds


def gloo(rank, where, name):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    at = "tcp://{}:{}".format(where[0], name) if where else "file:///tmp/rowlock-{}".format(name)
    dist.init_process_group("gloo", init_method=at, rank=rank, world_size=2)
    arrays = ((nbytes, torch.zeros(nbytes // 4)) for nbytes in SIZES)
    seconds = measured(rank, dist.all_reduce, arrays)
    dist.barrier()
    dist.destroy_process_group()
    return seconds


def copy(rank, where, name):
    seconds = {}
    for nbytes in SIZES:
        source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
        seconds.update(measured(rank, lambda row, t=target: np.copyto(t, row), [(nbytes, source)]))
    return seconds


def pair(system, python, hosts):
    """Run two processes of a system; returns the times that the first saw, or what went wrong."""
    name = str(40000 + uuid.uuid4().int % 20000) if hosts else uuid.uuid4().hex
    workers = []
    for rank in range(2):
        command = [python, __file__, "--worker", system, str(rank), name]
        command += ["--hosts"] if hosts else []
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        if hosts:
            command = ["ip", "netns", "exec", NAMESPACES[rank], *command]
            environment["GLOO_SOCKET_IFNAME"] = "rlkb{}".format(rank)
        workers.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
            )
        )
    try:
        ends = [worker.communicate(timeout=240) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    if any(worker.returncode for worker in workers):
        return (ends[0][1] or ends[1][1]).strip().splitlines()[-1]
    return {int(nbytes): times for nbytes, times in json.loads(ends[0][0]).items()}


def table(pythons, hosts, rounds):
    """Print the medians of a run."""
    print("\nBetween two {}, microseconds:".format("hosts" if hosts else "processes of a host"))
    times = {system: {nbytes: [] for nbytes in SIZES} for system in SYSTEMS}
    for _ in range(rounds):
        for system in list(times):
            seconds = pair(system, pythons[system], hosts)
            if isinstance(seconds, str):
                print("{} is left out: {}".format(system, seconds))
                del times[system]
                continue
            for nbytes in SIZES:
                times[system][nbytes] += seconds[nbytes]
    print(
        "{:>12} {:>11} {:>11} {:>11} {:>9} {:>9}".format(
            "bytes", *SYSTEMS, "gloo/ours", "ours/copy"
        )
    )
    for nbytes in SIZES:
        ours, theirs, limit = (
            float(np.median(times[system][nbytes])) if system in times else float("nan")
            for system in SYSTEMS
        )
        row = "{:>12} {:>11.1f} {:>11.1f} {:>11.1f} {:>9.1f} {:>9.1f}"
        print(row.format(nbytes, ours, theirs, limit, theirs / ours, ours / limit), flush=True)


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=not check)


def connect():
    """Make two network namespaces and a cable between them."""
    for name in NAMESPACES:
        ip("netns", "add", name)
    ip("link", "add", "rlkb0", "netns", NAMESPACES[0], "type", "veth",
       "peer", "name", "rlkb1", "netns", NAMESPACES[1])  # fmt: skip
    for rank, (name, address) in enumerate(zip(NAMESPACES, ADDRESSES, strict=True)):
        cable = "rlkb{}".format(rank)
        ip("-n", name, "addr", "add", address + "/24", "dev", cable)
        for link in ("lo", cable):
            ip("-n", name, "link", "set", link, "up")


def run():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        system, rank, name = options.worker
        where = ADDRESSES if options.hosts else None
        print(json.dumps(globals()[system](int(rank), where, name)))
        return
    pythons = {"rowlock": sys.executable, "gloo": options.torch_python, "copy": sys.executable}
    table(pythons, False, options.rounds)
    if not options.hosts:
        return
    if os.geteuid() != 0:
        print("\nBetween two hosts: skipped, network namespaces need root.")
        return
    try:
        connect()
        table(pythons, True, options.rounds)
    finally:
        for name in NAMESPACES:
            ip("netns", "del", name, check=False)


if __name__ == "__main__":
    run()
