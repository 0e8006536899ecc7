"""One of two hosts on this machine.

JAX's collectives of the CPU, which listen wherever the machine's name points to, are told to listen on loopback. What
host 1 has compiled is kept as well; JAX keeps that of host 0 alone.

    python one_host.py launch --config=...             as `python -m motif_jax.launch`
    python one_host.py update ADDRESS ME FILE          three updates of a linear policy, then host 1 fails
    python one_host.py meet ADDRESS ME SECONDS         waits so long for the other
    python one_host.py lose ADDRESS ME VICTIM          both meet and say so, then the victim waits for a signal
"""

import functools
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import compilation_cache, compiler
from jax._src.lib import _jax

from motif_jax import launch
from motif_jax.devices import coordination, host_arrays, hosts
from motif_jax.devices import mesh as parallel
from motif_jax.structs import UserError
from motif_jax.system.meeting import Meeting, split_address

LARGE = np.array([2_000_000_001.25, 2.0**40 + 1])  # 32 bits are too few for either


def start_hosts(address: str, me: str) -> None:
    """Meets the other host."""
    hosts.start_hosts(Meeting(*split_address(address, ""), 2, int(me)), lambda: "")


def update(address: str, me: str, file: str) -> None:
    """What became of the parameters, of numbers that are passed on, and of this host when the other one failed."""
    jax.config.update("jax_num_cpu_devices", 2)
    start_hosts(address, me)
    import linear_policy  # not before: it computes

    assert coordination.host() == (int(me), 2)
    half = linear_policy.B // 2
    share = slice(int(me) * half, (int(me) + 1) * half)
    rollouts = jax.tree.map(lambda array: array[:, share], linear_policy.make_rollouts())
    state, metrics = linear_policy.train(rollouts=rollouts, devices=0, updates=3)
    sent = host_arrays.from_first_host(
        {"large": LARGE * (1 + int(me)), "none": np.zeros((2, 0)), "yes": np.array(me == "0")}
    )
    mine = {"numbers": np.arange(6.0), "host": np.array(7)}
    same, nobody = host_arrays.same_on_every_host(mine)
    other, differing = host_arrays.same_on_every_host(mine | {"host": np.array(int(me))})
    assert same is mine
    assert nobody == []
    assert differing == [1]
    assert (int(other["host"]), other["numbers"].tolist()) == (0, [0, 1, 2, 3, 4, 5])
    copy_arrays(int(me))
    told = ""
    try:
        with hosts.Hosts() as together:
            vote, others = together.agree(hosts.Vote.GO_ON, (10 + int(me), 20, 30))
            if me == "1":
                raise FileNotFoundError("the disk of host 1")
            together.agree(hosts.Vote.GO_ON)
    except (UserError, FileNotFoundError) as error:
        told = str(error)
    np.savez(file, **state.params, loss=metrics["loss"], told=told, vote=vote, others=others, **sent)


def copy_arrays(me: int) -> None:
    """Copies arrays that are cut among the two devices of each host, and refuses one that is cut among the hosts."""
    mesh = parallel.make_mesh(fsdp=2)
    assert [{device.process_index for device in place.flat} for place in mesh.devices] == [{0}, {1}]
    array = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    placed = parallel.place({"cut": array, "whole": np.float32(3)}, mesh)
    assert not placed["cut"].is_fully_replicated
    for copies in (host_arrays.local_copy, host_arrays.spread_copy, host_arrays.host_copy):
        found = copies(placed)
        np.testing.assert_array_equal(found["cut"], array)
        assert found["whole"] == 3
    batch = parallel.shard(array, mesh)  # each host gives the same, so it is there twice
    assert batch.shape == (8, 3)
    np.testing.assert_array_equal(host_arrays.host_part(batch), array)
    for copies in (host_arrays.local_copy, host_arrays.spread_copy, host_arrays.host_copy):
        try:
            copies(batch)
        except ValueError as error:
            assert "this host has only a part of an array of shape (8, 3)" in str(error)  # noqa: PT017
        else:
            raise AssertionError(f"host {me} has a whole copy")


def meet(address: str, me: str, seconds: str) -> None:
    """Waits for the other host."""
    hosts.START_TIMEOUT_S = float(seconds)
    start_hosts(address, me)


def lose(address: str, me: str, victim: str) -> None:
    """The other host waits in XLA for the victim's devices."""
    start_hosts(address, me)
    with hosts.Hosts():
        print("met", flush=True)
        if me == victim:
            signal.pause()
        parallel.make_mesh()


def wait_for_line() -> None:
    """Becomes impatient at a line on standard input."""
    if os.read(0, 1):
        coordination.SILENT_BEATS = 20


def keep_compiled(key: str, seconds: float, name: str, backend: Any, executable: Any, callbacks: Sequence[Any]) -> None:
    """As `compiler._cache_write`, for every host."""
    compilation_cache.put_executable_and_time(key, name, executable, backend, int(seconds))


if __name__ == "__main__":
    compiler._cache_write = keep_compiled
    _jax.make_gloo_tcp_collectives = functools.partial(_jax.make_gloo_tcp_collectives, hostname="127.0.0.1")
    coordination.BEAT_S, coordination.SILENT_BEATS = 0.2, 10**6  # a busy machine makes nobody lost
    hosts.START_TIMEOUT_S = 900.0  # nor too late: neither for the meeting, nor, in XLA, for the devices
    jax.config.update("jax_cpu_get_local_topology_timeout_minutes", 60)
    jax.config.update("jax_cpu_get_global_topology_timeout_minutes", 60)
    threading.Thread(target=wait_for_line, daemon=True).start()
    sys.path.insert(0, str(Path(__file__).parent.parent / "learner"))
    what, *arguments = sys.argv[1:]
    if what == "launch":
        launch.define_flags()
        sys.exit(launch.main(sys.argv[1:]))
    try:
        {"update": update, "meet": meet, "lose": lose}[what](*arguments)
    except UserError as error:
        sys.exit(f"motif_jax: {error}")
