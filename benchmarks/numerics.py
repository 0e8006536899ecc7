"""Compares the results of a device with those of a CPU in float32, for the policy's step and its update.

Both are given the same parameters and the same moments of NetHack. The difference of an array d from the CPU's c is

    |d - c| / max(|c|, |all| / 100)

in Euclidean norms; `all` are the arrays that belong together, for example all gradients, so that an array that is
nearly zero does not count for more than it means. A program's difference is that of its worst array.

The policy is compared in three precisions: float32 with exact products, which tells whether the program is right;
float32 as it is trained, where many GPUs round the factors of products to ten bits (TF32); and bfloat16.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from benchmarks.device import find_cpu, mesh_of
from benchmarks.rows import Row, Rows
from benchmarks.sources import untrained_sources
from motif_jax.actors.acting import SyncLoop
from motif_jax.console import print_line
from motif_jax.devices.mesh import host_copy, map_update
from motif_jax.devices.parameters import name_of
from motif_jax.learner.update import Rollouts, init_state, make_policy_update
from motif_jax.policies.learning import make_place, make_shape_rewards
from motif_jax.rewards.learnt_source import make_mix
from motif_jax.stages import train_policy
from motif_jax.stages.train_policy.loop import Parts, assemble
from motif_jax.structs import UserError
from motif_jax.system.machine import usable_cores

MOST_GAMES = 64
NOISE = 0.3  # on the logits and values of the policy that acted, as if it were an older one
METRICS = ("value_loss", "entropy", "kl", "gradient_norm")  # of the policy's update, beside its gradient
PART = 100  # see above
PRODUCTS = {"exact": "highest", "float32": None, "bfloat16": None}  # JAX's precision of products, None: its default
# Largest differences, by precision and program. Exact products differ by the order of sums. TF32 keeps ten bits of each
# factor and bfloat16 seven, an error of 2^-11 and 2^-8 each; a gradient passes some hundred products one after another.
# On a CPU bfloat16 was off by 0.01 in a step and by 0.07 in the gradient of 64 moments; what is left out is off by 1.
TOLERANCES: dict[str, dict[str, float]] = {
    "exact": {"policy_step": 1e-4, "policy_update": 1e-3},
    "float32": {"policy_step": 1e-2, "policy_update": 5e-2},
    "bfloat16": {"policy_step": 5e-2, "policy_update": 2e-1},
}


class Program(NamedTuple):
    """A program that can be compiled for any device."""

    make: Callable[[Mesh], Callable[..., Any]]  # compiles it for a mesh: arguments -> tree of arrays
    arguments: tuple[Any, ...]  # trees of arrays


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `numerics.*`: the largest difference of each program in each precision."""
    device, cpu, rows = jax.devices()[0], find_cpu(), Rows()
    if device == cpu:
        print_line("benchmark: there is no accelerator: the CPU is compared with itself")
    rollouts = play(numerics_config(config, "float32"))
    exact = programs(config, "float32", rollouts)
    found = {"exact": exact, "float32": exact, "bfloat16": programs(config, "bfloat16", rollouts)}
    with concurrent.futures.ThreadPoolExecutor(min(usable_cores(), 8)) as pool:  # most of the time is compilation
        wanted = {name: pool.submit(run, program, cpu, "highest") for name, program in exact.items()}
        if device == cpu:
            concurrent.futures.wait(wanted.values())  # then JAX knows the same programs already
        results = {
            (precision, name): pool.submit(run, found[precision][name], device, PRODUCTS[precision])
            for precision, tolerances in TOLERANCES.items()
            for name in tolerances
        }
        for (precision, name), result in results.items():
            add_row(rows, precision, name, *compare(result.result(), wanted[name].result()))
    return rows


def add_row(rows: Rows, precision: str, name: str, difference: float, worst: str) -> None:
    """Adds the row of one comparison."""
    tolerance = TOLERANCES[precision][name]
    sizes = {"tolerance": tolerance, "agrees": difference <= tolerance, "worst": worst}
    rows.add(f"numerics.{name}.{precision}", float(f"{difference:.3g}"), "of the norm", 15, **sizes)


def check_agreement(rows: list[Row]) -> None:
    """Raises UserError if a difference is larger than tolerated."""
    wrong = ", ".join(
        f"{row.name.removeprefix('numerics.')} by {row.value:g} in {row.sizes['worst']} "
        f"(tolerated: {row.sizes['tolerance']:g})"
        for row in rows
        if row.name.startswith("numerics.") and not row.sizes["agrees"]
    )
    if wrong:
        raise UserError(f"this device computes something else than the CPU: {wrong}")


def run(program: Program, device: Any, precision: str | None) -> Any:
    """The result of a program on a device, as NumPy arrays; `precision` of its products, None for the default."""
    with jax.default_matmul_precision(precision):
        arguments = jax.tree.map(np.array, program.arguments)  # copies, as a program may be given their memory
        return host_copy(program.make(mesh_of(device))(*jax.device_put(arguments, device)))


def compare(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[float, str]:
    """The largest difference between two results, infinite if a value is not finite; and the array that has it.

    Arrays under the same name of the mappings belong together.
    """
    differences = {}
    for group, tree in wanted.items():
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        arrays = [np.asarray(leaf, np.float64) for _, leaf in leaves]
        least = np.sqrt(sum(np.square(array).sum() for array in arrays)) / PART
        for (path, _), array, other in zip(leaves, arrays, jax.tree.leaves(found[group]), strict=True):
            away = np.linalg.norm(np.asarray(other, np.float64) - array)
            difference = away / max(np.linalg.norm(array), least, 1e-30)
            differences[".".join([group, *name_of(path)])] = float(difference) if np.isfinite(difference) else np.inf
    worst = max(differences, key=lambda name: differences[name])
    return differences[worst], worst


# ---- the programs


def numerics_config(config: ConfigDict, dtype: str) -> ConfigDict:
    """The config with few games, which are played in this process, and one step of the optimizer per update."""
    config = config.copy_and_resolve_references()
    section = config.policy
    games = min(section.games_per_worker // section.groups, MOST_GAMES)
    section.update({"dtype": dtype, "network": config.benchmark.networks[0], "num_workers": 0, "num_devices": 1})
    section.update({"games_per_worker": games, "groups": 1, "batch_size": games * section.rollout_length})
    section.update({"num_epochs": 1, "num_minibatches": 1, "synchronous": True, "warmup_steps": 50, "fsdp": 1})
    section.tensor = 1
    return config


def make_parts(config: ConfigDict) -> Parts:
    """What the policy's training is made of, with an untrained reward."""
    return assemble(
        train_policy.STAGE.view(config.to_dict()), Path(), lambda setting: untrained_sources(config), hosts=1
    )


def play(config: ConfigDict) -> Rollouts:
    """A batch of rollouts, as NumPy arrays."""
    parts = make_parts(config)
    learner, games = parts.learner, parts.games
    unpacked = learner._replace(model=learner.model._replace(pack=None))  # whole observations, for the programs below
    player = games.player(learner.model, seed=0)
    with games.open(player, learner.sources.observations) as pool:
        source = SyncLoop(pool, player, games.rollouts, make_place(unpacked))
        batch = None
        while batch is None:
            batch = source.get(1.0)
        rollouts = host_copy(batch.arrays.rollouts)
    rng = np.random.default_rng(0)
    logits, value = (
        array + NOISE * rng.standard_normal(array.shape, np.float32) for array in (rollouts.logits, rollouts.value)
    )
    return rollouts._replace(logits=logits, value=value)


def programs(config: ConfigDict, dtype: str, rollouts: Rollouts) -> dict[str, Program]:
    """The programs by name, with a policy of this type."""
    config = numerics_config(config, dtype)
    learner = make_parts(config).learner
    model = learner.model
    params, frozen = host_copy(model.params), host_copy(model.frozen)
    moment = {key: array[0] for key, array in rollouts.observations.items()}
    update = make_policy_update(
        model.unroll, make_shape_rewards(make_mix(config.policy, None), learner.sources), learner.settings
    )

    def step(params: Any, frozen: Any, observations: Any, first: Any, core: Any) -> dict[str, Any]:
        logits, values, core = model.step(params, frozen, observations, first, core, model.prepare(params, frozen))
        return {"logits": logits, "values": values, "core": core}

    def make_learn(mesh: Mesh) -> Callable[..., Any]:
        mapped = map_update(update, mesh, batch_axis=1, num_constants=1)

        def learn(*arguments: Any) -> dict[str, Any]:
            state, metrics = mapped(*arguments)
            gradient = {"gradient": optax.tree_utils.tree_get(state.optimizer, "mu")}
            return gradient | {name: metrics[name] for name in METRICS}

        return learn

    return {
        "policy_step": Program(
            lambda mesh: jax.jit(step), (params, frozen, moment, rollouts.first[0], rollouts.core[0])
        ),
        "policy_update": Program(make_learn, (init_state(params, learner.settings), frozen, rollouts)),
    }
