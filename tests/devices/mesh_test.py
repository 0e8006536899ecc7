from dataclasses import replace

import jax
import numpy as np
import pytest
from conftest import on_devices
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from linear_policy import BASE, assert_near, assert_same, initial, make_rollouts, shape_rewards, unroll

from motif_jax.devices import mesh as meshes
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.learner.metrics import numbers
from motif_jax.learner.update import LearnerState, make_policy_update
from motif_jax.structs import UserError

SETTINGS = replace(BASE, num_epochs=2, num_minibatches=2)
RULES = ((r"\bcore$", P("tensor", "fsdp")), ("policy", P("fsdp")))
MESHES = {  # sizes of data, fsdp and tensor, with rules: the parameters that are cut
    ((8, 1, 1), ()): set(),
    ((2, 2, 2), RULES): {"core", "policy", ""},
    ((1, 4, 2), ()): {"core", "policy", ""},
    ((2, 1, 4), ()): {"core"},
}


def start(sizes, rules=(), state=None):
    data, fsdp, tensor = sizes
    mesh = meshes.make_mesh(data * fsdp * tensor, fsdp, tensor)
    state = jax.tree.map(np.array, initial(SETTINGS)) if state is None else state
    results = meshes.shardings(state, mesh, rules), NamedSharding(mesh, P())
    update = meshes.map_update(make_policy_update(unroll, shape_rewards, SETTINGS), mesh, 1, 1, results)
    return mesh, update, meshes.place(state, mesh, rules)


def learn(sizes, rules=(), state=None, updates=2):
    mesh, update, state = start(sizes, rules, state)
    before = jax.tree.map(lambda leaf: leaf.sharding, state)
    rollouts = meshes.shard(make_rollouts(), mesh, axis=1)
    for _ in range(updates):
        state, metrics = update(state, (), rollouts)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == before  # so nothing is compiled or moved anew
    return state, numbers(metrics)


def cut_leaves(state):
    """The names of the arrays that are cut, in which `leaves_by_path` leaves out "value"."""
    return {".".join(name) for name, leaf in leaves_by_path(state).items() if not leaf.is_fully_replicated}


@on_devices(8)
def test_sharded_parameters_learn_as_whole_ones_and_a_checkpoint_goes_on_on_another_mesh(tmp_path):
    whole, wanted = learn((1, 1, 1))
    for (sizes, rules), cut in MESHES.items():
        state, metrics = learn(sizes, rules)
        assert cut_leaves(state.params) == cut
        moments = {"1.mu", "1.nu"}
        assert cut_leaves(state.optimizer) == {f"{moment}.{name}".rstrip(".") for moment in moments for name in cut}
        if sizes == (2, 2, 2):
            assert state.params["core"].addressable_shards[0].data.size * 4 == state.params["core"].size
        assert_near(jax.device_get((state, metrics)), jax.device_get((whole, wanted)))

    # copies are whole, and stay what they are when the update is given the state's memory
    mesh, update, state = start((2, 2, 2))
    wanted = jax.tree.map(np.array, initial(SETTINGS))
    local, host = meshes.local_copy(state), meshes.host_copy(state)
    placed = meshes.shard(make_rollouts(), mesh, axis=1)
    state, _ = update(state, (), placed)
    for copy in (local, host):
        assert_same(copy, wanted, atol=0)
    assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(local))
    for array in (placed.action, placed.core, placed.observations["x"]):  # as an update that failed is written
        np.testing.assert_array_equal(meshes.host_part(array), np.asarray(array))

    # a checkpoint of one mesh goes on on any other
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"learner": state}, {})
    _, saved, _ = checkpoints.latest()
    again = rebuild(initial(SETTINGS), leaves_by_path(saved["learner"]), tmp_path)
    checkpoints.close()
    resumed, _ = learn((4, 1, 2), state=LearnerState(*jax.tree.map(np.array, again)), updates=1)
    assert_same(jax.device_get(resumed), jax.device_get(whole), atol=2e-6)


def test_sizes_that_do_not_divide_the_devices_are_refused():
    with pytest.raises(UserError, match="fsdp 2 times tensor 1 must divide the number of devices of this host, 1"):
        meshes.make_mesh(1, fsdp=2)


def specs(shapes, sizes, rules=()):
    mesh = AbstractMesh(sizes, meshes.AXES, axis_types=(AxisType.Auto,) * 3)
    arrays = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}
    return {name: sharding.spec for name, sharding in meshes.shardings(arrays, mesh, rules).items()}


@pytest.mark.quick
def test_the_longest_side_is_cut_and_small_arrays_are_copied():
    shapes = {"kernel": (6, 12), "table": (100, 7), "odd": (5, 7), "bias": (12,), "version": (), "stack": (3, 8, 4)}
    assert set(specs(shapes, (8, 1, 1)).values()) == {P()}
    assert specs(shapes, (1, 4, 2)) == {
        "kernel": P("tensor", "fsdp"),  # 12 sides by 4, then 6 by 2
        "table": P("fsdp"),  # 7 is odd
        "odd": P(),
        "bias": P(),
        "version": P(),
        "stack": P(None, "fsdp", "tensor"),
    }
    # the first rule whose pattern is found decides
    rules = [(r"mu\.kernel$", P(None, "fsdp")), ("kernel", P()), ("bias", P("tensor"))]
    shapes = {"mu.kernel": (4, 4), "nu.kernel": (4, 4), "bias": (2,), "other": (4, 4)}
    cut = specs(shapes, (1, 4, 2), rules)
    assert cut == {"mu.kernel": P(None, "fsdp"), "nu.kernel": P(), "bias": P("tensor"), "other": P("fsdp", "tensor")}
