"""What stands in for the expensive parts where the program around them is measured: a recording, a free network.

The free network has the parameters of the small one, so that passing them around costs what it costs, and it reads a
number of each observation, so that they are all copied to the device; it computes nothing else. Its learner counts its
updates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from motif_jax.actors.pool import ActorPool
from motif_jax.envs.canned import NUM_ACTIONS, CannedWorld
from motif_jax.learner.update import LearnerState
from motif_jax.policies.model import Model, make_policy_model

OBSERVATIONS = tuple(CannedWorld.specs)
MOMENTS, GAMES = 16, 64  # of the recording
WARMUP = 300  # steps that the recorded games have behind them at most


def record_games(file: Path) -> None:
    """Plays NetHack at random and writes what a policy would see to `file`, for `envs.canned.CannedWorld`."""
    with ActorPool(
        {}, OBSERVATIONS, num_workers=1, games_per_worker=GAMES, rollout_length=MOMENTS, player="random",
        warmup_steps=WARMUP,
    ) as pool:  # fmt: skip
        rollouts: dict[int, dict[str, np.ndarray]] = {}  # the first one of each group, which is one game here
        while len(rollouts) < GAMES:
            for full in pool.poll()[1]:
                if full.group not in rollouts:
                    keys = (*OBSERVATIONS, "reward")
                    rollouts[full.group] = {key: pool.rollouts[key][full.slot][:MOMENTS].copy() for key in keys}
                pool.release(full)
    in_order = [rollouts[group] for group in sorted(rollouts)]
    arrays: dict[str, Any] = {key: np.concatenate([one[key] for one in in_order], 1) for key in in_order[0]}
    np.savez(file, **arrays)


def free_model(seed: int) -> Model:
    """The network that costs nothing; see the module docstring."""
    model = make_policy_model({"network": "small", "num_actions": NUM_ACTIONS, "dtype": "float32"}, seed)

    def step(params: Any, frozen: Any, observations: Any, first: Any, core: Any, prepared: Any) -> tuple[Any, ...]:
        seen = sum(array.reshape(len(array), -1)[:, 0].astype(jnp.int32) for array in observations.values())
        logits = jax.nn.one_hot((seen + first) % NUM_ACTIONS, NUM_ACTIONS)
        return logits, logits[:, 0], core

    def unroll(params: Any, frozen: Any, observations: Any, first: Any, core: Any) -> tuple[Any, Any]:
        raise AssertionError("the free learner unrolls nothing")

    return model._replace(core_size=0, prepare=lambda params, frozen: (), step=step, unroll=unroll)


def free_update(mesh: Any) -> Any:
    """The compiled update that only counts: (state, constants, rollouts) -> (state, metrics)."""

    def update(state: LearnerState, constants: Any, rollouts: Any) -> tuple[LearnerState, dict[str, jax.Array]]:
        metrics = {"finite": jnp.ones(()), "reward": rollouts.reward[0, 0], "action": rollouts.action[0, 0]}
        return state._replace(version=state.version + 1), metrics

    return jax.jit(update, donate_argnums=0, out_shardings=NamedSharding(mesh, P()))
