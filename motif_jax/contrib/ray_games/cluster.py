"""A cluster of Ray: connects to it, compares its hosts with this one, and runs several seeds there as tasks."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from motif_jax.console import print_line
from motif_jax.contrib.ray_games.sections import NAME, RayGames
from motif_jax.structs import UserError
from motif_jax.system.machine import commit, is_installed, usable_cores
from motif_jax.system.meeting import split_address
from motif_jax.system.runs import LOG, PATIENCE_S, PlannedRun, Runner, check_all, end, memory_share, start

FLAG = "--config.ray_games.address"
REACH_S = 5.0  # for an address to answer
JOIN_S = 60.0  # for hosts that were started at the same time to join
# Answers below a megabyte take half the CPU time if they do not go through Ray's object store (its limit is 100 kB).
# launch/start.sh has the same.
VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_max_direct_call_object_size": str(2**20)}
LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # on Linux as there, Ray then listens at 127.0.0.1 alone
RETRIES = 20  # of a run whose host is lost
LOCAL_STORE = 2**28  # bytes of shared memory for messages; Ray would take a third of the machine's


def connect(address: str) -> Any:
    """Connects this process to the cluster, and returns the module `ray`.

    `address`: `local` starts one of this machine, `auto` finds the one that `ray start` started here.
    """
    os.environ.update(VARIABLES | (LOCAL if address == "local" else {}) | os.environ)
    try:
        import ray
    except ImportError:
        raise UserError(f"a cluster needs Ray: pip install 'motif_jax[ray]', on all its hosts ({FLAG})") from None
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"address": address}
    if address == "local":
        options |= {"num_cpus": usable_cores(), "object_store_memory": LOCAL_STORE, "_node_ip_address": "127.0.0.1"}
        options["include_dashboard"] = False
    elif address != "auto":
        check_reachable(address)
    ours = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        hint = "has it this Ray and Python, and does this host have its key, ~/.ray/auth_token?"
        where = f"the cluster {address!r} from {socket.gethostname()}"
        raise UserError(f"cannot join {where}: {error}; {hint} ({FLAG})") from None
    finally:
        for number, handler in ours.items():  # Ray's would end the process without saving
            signal.signal(number, handler)
    return ray


def check_reachable(address: str) -> None:
    """Raises UserError at once if nothing answers; Ray would try for a minute."""
    host, port = split_address(address, FLAG)
    try:
        socket.create_connection((host, port), REACH_S).close()
    except OSError as error:
        hint = "is Ray's head running there, and the port open to this host?"
        raise UserError(f"{host!r} does not answer on port {port}: {error}; {hint} ({FLAG})") from None


def check_room(ray: Any, hosts: int, cores: int, address: str) -> None:
    """Waits for hosts that are about to join; raises UserError if the cluster is too small for `hosts` x `cores`."""
    deadline = time.monotonic() + (0 if address == "local" else JOIN_S)
    while True:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        cpus = [(node["NodeManagerHostname"], int(node["Resources"].get("CPU", 0))) for node in nodes]
        room = sum(count // cores for _, count in cpus)
        if room >= hosts:
            return
        if time.monotonic() > deadline:
            raise UserError(
                f"{hosts} hosts with {cores} cores each are asked for, and the cluster {address!r} has room for "
                f"{room}: {', '.join(f'{name} has {count} cores' for name, count in cpus)} "
                "(--config.ray_games.hosts, .cores)"
            )
        time.sleep(0.5)


def program() -> dict[str, str]:
    """The versions that must be equal on all hosts; Ray itself compares those of Ray and Python."""
    versions = {name: metadata.version(name) if is_installed(name) else "none" for name in ("motif_jax", "nle")}
    return versions | {"the checkout": commit() or "none"}


def difference(there: dict[str, str], cores: int) -> str:
    """What another host has that this one does not expect, in words; "" if it can play. It runs on that host."""
    where, here = f"the host {socket.gethostname()}", program()
    for name, version in there.items():
        if here[name] != version:
            return f"{where} has {name} {here[name]}, and the learner's host {version}: install the same on both"
    if usable_cores() < cores:
        return f"{where} lets its games use {usable_cores()} cores, not {cores} (--config.ray_games.cores)"
    return ""


# ---- many runs


class RayRunner(Runner):
    """Plays runs on all hosts of the cluster."""

    is_here = False

    def __init__(self, cluster: RayGames):
        self._cluster = cluster

    def run_all(self, runs: Sequence[PlannedRun], argv: Sequence[str], workdir: Path) -> None:
        run_all(runs, argv, workdir, self._cluster)


def runner(config: Any) -> Runner | None:
    """The plugin's `runners`, if the config has a cluster."""
    cluster: RayGames = config.plugins[NAME]
    return RayRunner(cluster) if cluster.address else None


def run_all(runs: Sequence[PlannedRun], argv: Sequence[str], workdir: Path, cluster: RayGames) -> None:
    """As `runs.run_all`, on all hosts of a cluster that share the workdir: each run is a task of Ray.

    A task whose host is lost is begun again on another one, where the run resumes.
    """
    ray, cores, gpus = connect(cluster.address), cluster.cores, cluster.gpus
    check_room(ray, 1, cores, cluster.address)
    task = ray.remote(play_run).options(num_cpus=cores, num_gpus=gpus, max_retries=RETRIES)
    where, failed = str(workdir.absolute()), []
    waiting = {task.remote(run, list(argv), where, os.getcwd(), cores, gpus, program()): run for run in runs}
    print_line(f"{len(runs)} runs on the cluster, {cores} cores each; their output goes to {LOG} in each workdir")
    try:
        while waiting:
            for reference in ray.wait(list(waiting), timeout=0.5)[0]:
                run = waiting.pop(reference)
                try:
                    host, status = ray.get(reference)
                except ray.exceptions.RayError as error:
                    failed.append(f"{run.folder} ({getattr(error, 'cause', None) or error})")
                    continue
                print_line(f"run {len(runs) - len(waiting)} of {len(runs)}: {run.folder} on {host}, status {status}")
                if status:
                    failed.append(f"{run.folder} (status {status}, see {str(workdir / run.folder / LOG)!r})")
    finally:
        for reference in waiting:  # the runs save
            ray.cancel(reference)
        if waiting:
            ray.wait(list(waiting), num_returns=len(waiting), timeout=PATIENCE_S)
    check_all(runs, failed)


def play_run(
    run: PlannedRun, argv: list[str], workdir: str, folder: str, cores: int, gpus: float, versions: dict[str, str]
) -> tuple[str, int]:
    """Plays one run on the host of a task; returns the host's name and the run's exit status."""
    if problem := difference(versions, cores):
        raise UserError(problem)
    os.chdir(folder)  # the command line may name files in it
    with own_cores(cores) as own:
        variables = memory_share(min(gpus, 1.0)) if gpus else {"JAX_PLATFORMS": "cpu"}
        process = start(run, argv, Path(workdir), own, variables, log=True)
        try:
            while process.poll() is None:  # `ray.cancel` does not interrupt `wait`
                time.sleep(0.2)
            return socket.gethostname(), process.returncode
        finally:
            end([process])


@contextlib.contextmanager
def own_cores(count: int) -> Iterator[list[int]]:
    """Cores that no other run on this host gets meanwhile, as Ray only counts them."""
    with contextlib.ExitStack() as stack:
        cores: list[int] = []
        for core in sorted(os.sched_getaffinity(0)):
            name = stack.enter_context(socket.socket(socket.AF_UNIX))  # the kernel frees it with the process
            with contextlib.suppress(OSError):
                name.bind(f"\0motif_jax-{os.getuid()}-core-{core}")
                cores.append(core)
            if len(cores) == count:
                break
        yield cores or sorted(os.sched_getaffinity(0))
