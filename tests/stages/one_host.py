"""One of two hosts on this machine.

python one_host.py launch --config=...             as `python -m motif_jax.launch`
python one_host.py update ADDRESS ME FILE          three updates of a linear policy, then host 1 fails
python one_host.py meet ADDRESS ME SECONDS         waits so long for the other
"""

import sys
from pathlib import Path

import jax
import numpy as np

from motif_jax import launch
from motif_jax.devices import hosts
from motif_jax.devices import mesh as parallel
from motif_jax.structs import UserError
from motif_jax.system.meeting import Meeting, split_address

LARGE = np.array([2_000_000_001.25, 2.0**40 + 1])  # 32 bits are too few for either


def start_hosts(address: str, me: str) -> None:
    hosts.start_hosts(Meeting(*split_address(address, ""), 2, int(me)), lambda: "")


def update(address: str, me: str, file: str) -> None:
    """What became of the parameters, of numbers that are passed on, and of this host when the other one failed."""
    jax.config.update("jax_num_cpu_devices", 2)
    start_hosts(address, me)
    import linear_policy  # not before: it computes

    half = linear_policy.B // 2
    share = slice(int(me) * half, (int(me) + 1) * half)
    rollouts = jax.tree.map(lambda array: array[:, share], linear_policy.make_rollouts())
    state, metrics = linear_policy.train(rollouts=rollouts, devices=0, updates=3)
    given = {"large": LARGE * (1 + int(me)), "none": np.zeros((2, 0)), "yes": np.array(me == "0")}
    sent = parallel.from_first_host(given)
    copy_arrays(int(me))
    told = ""
    try:
        with hosts.Hosts() as together:
            assert (together.me, together.count) == (int(me), 2)
            together.check_same("a state", {"numbers": np.arange(6.0), "step": 7})
            differs = ""
            try:
                together.check_same("a state", {"numbers": np.arange(6.0), "step": int(me)})
            except UserError as error:
                differs = str(error)
            said = together.agree(hosts.Ballot(hosts.Vote.GO_ON, 10 + int(me), 20, 30))
            if me == "1":
                raise FileNotFoundError("the disk of host 1")
            together.agree()
    except (UserError, FileNotFoundError) as error:
        told = str(error)
    np.savez(file, **state.params, loss=metrics["loss"], told=told, differs=differs, said=said, **sent)


def copy_arrays(me: int) -> None:
    """Copies arrays that are cut among the two devices of each host, and its part of a batch."""
    mesh = parallel.make_mesh(fsdp=2)
    assert [{device.process_index for device in place.flat} for place in mesh.devices] == [{0}, {1}]
    array = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    placed = parallel.place({"cut": array, "whole": np.float32(3)}, mesh)
    assert not placed["cut"].is_fully_replicated
    for copies in (parallel.local_copy, parallel.host_copy):
        copy = copies(placed)
        np.testing.assert_array_equal(copy["cut"], array)
        assert copy["whole"] == 3
    batch = parallel.shard(array, mesh)  # each host gives the same, so it is there twice
    assert batch.shape == (8, 3)
    np.testing.assert_array_equal(parallel.host_part(batch), array)


def meet(address: str, me: str, seconds: str) -> None:
    hosts.START_TIMEOUT_S = float(seconds)
    start_hosts(address, me)


if __name__ == "__main__":
    hosts.START_TIMEOUT_S = 900.0  # on a busy machine nobody is late, neither for the meeting nor, in XLA, for devices
    jax.config.update("jax_cpu_get_local_topology_timeout_minutes", 60)
    jax.config.update("jax_cpu_get_global_topology_timeout_minutes", 60)
    sys.path.insert(0, str(Path(__file__).parent.parent / "learner"))
    what, *arguments = sys.argv[1:]
    if what == "launch":
        launch.define_flags()
        sys.exit(launch.main(sys.argv[1:]))
    try:
        {"update": update, "meet": meet}[what](*arguments)
    except UserError as error:
        sys.exit(f"motif_jax: {error}")
