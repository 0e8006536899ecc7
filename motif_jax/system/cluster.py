"""Connects to a cluster of Ray, and compares its hosts with this one. Loaded only for --config.cluster.address."""

from __future__ import annotations

import os
import signal
import socket
from importlib import metadata
from typing import Any

from motif_jax.structs import UserError
from motif_jax.system.machine import commit, is_installed, usable_cores
from motif_jax.system.meeting import split_address

FLAG = "--config.cluster.address"
REACH_S = 5.0  # for an address to answer
# Answers below a megabyte take half the CPU time if they do not go through Ray's object store (its limit is 100 kB).
VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_max_direct_call_object_size": str(2**20)}  # launch/ray sets them too
LOCAL_STORE = 2**28  # bytes of shared memory for messages; Ray would take a third of the machine's


def connect(address: str) -> Any:
    """Connects this process to the cluster, and returns the module `ray`.

    `address`: `local` starts one of this machine, `auto` finds the one that `ray start` started here.
    """
    os.environ.update(VARIABLES | os.environ)
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
        ray.init(**options, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:  # no cluster here, or one of another Ray or Python
        raise UserError(f"cannot join the cluster {address!r} from {socket.gethostname()}: {error} ({FLAG})") from None
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
        raise UserError(
            f"{host!r} does not answer on port {port}: {error}; is Ray's head running there, and the port open to this "
            f"host? ({FLAG})"
        ) from None


def check_room(ray: Any, hosts: int, cores: int, address: str) -> None:
    """Raises UserError if the cluster is too small for `hosts` times `cores`."""
    cpus = {node["NodeManagerHostname"]: int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    room = sum(int(node["Resources"].get("CPU", 0)) // cores for node in ray.nodes() if node["Alive"])
    if room < hosts:
        raise UserError(
            f"{hosts} hosts with {cores} cores each are asked for, and the cluster {address!r} has room for {room}: "
            f"{', '.join(f'{name} has {count} cores' for name, count in cpus.items())} "
            "(--config.cluster.game_hosts, .cores)"
        )


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
        return f"{where} lets its games use {usable_cores()} cores, not {cores} (--config.cluster.cores)"
    return ""
