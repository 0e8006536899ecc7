"""Random network distillation as a reward source: novel observations have a high reward (distillation.py).

It reads the policy's observations. The reward of a step is the novelty of the next observation; the last step of an
episode is worth 0, because the next frame belongs to another episode. The predictor learns from every batch once, after
the policy, on the learner's devices. Rewards are computed on one of these from the last snapshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from motif_jax.devices.host_arrays import local_copy
from motif_jax.devices.mesh import map_update, replicate
from motif_jax.devices.parameters import leaves_by_path, rebuild, sum_of_arrays
from motif_jax.envs.world import select_specs
from motif_jax.networks.kinds import from_record, to_record
from motif_jax.rewards.distillation import NoveltyState, make_novelty
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError

CHUNK = 4096  # observations per call
SEED = 81  # so that its networks are not those of the policy


class RandomDistillation(RewardSource):
    """The prediction error of random network distillation, normalised."""

    def __init__(self, facts: Facts, key: jax.Array, mesh: Mesh | None):
        """Makes new networks.

        `facts`: `observations` (their specs, as `kinds.to_record` writes them), `hidden`, `outputs`, `learning_rate`.
        `mesh`: needed for `advance`.
        """
        self._facts, self._mesh = facts, mesh
        specs = dict(sorted(from_record(facts["observations"]).items()))
        self.observations = tuple(specs)
        novelty = make_novelty(specs, facts["hidden"], facts["outputs"], facts["learning_rate"])
        self._bonus = jax.jit(novelty.bonus)
        self._update = map_update(novelty.update, mesh, batch_axis=1) if mesh is not None else None
        self._metrics: dict[str, jax.Array] = {}  # metrics of the last update
        self._begin(jax.jit(novelty.init)(key))

    @classmethod
    def make(cls, setting: Setting) -> RandomDistillation:
        section = vars(setting.config.policy.rnd)
        facts: Facts = {name: section[name] for name in ("hidden", "outputs", "learning_rate")}
        facts["observations"] = to_record(select_specs(setting.specs, setting.reads))
        return cls(facts, jax.random.fold_in(jax.random.key(setting.config.seed), SEED), setting.mesh)

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> RandomDistillation:
        source = cls(facts, jax.random.key(0), None)
        source.restore(arrays, facts)
        return source

    def _begin(self, state: NoveltyState) -> None:
        """Takes a state, and makes the snapshot."""
        if self._mesh is not None:
            self._state = replicate(state, self._mesh)
            state = local_copy(self._state)  # because updates donate the memory of the state
        self._snapshot = state

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        snapshot = self._snapshot  # the learner's thread may swap it meanwhile
        ended = rollouts["terminated"] | rollouts["truncated"]  # [T, B]
        seen = {name: rollouts[name][1:].reshape(-1, *rollouts[name].shape[2:]) for name in self.observations}
        bonus = np.empty(ended.size, np.float32)
        for start in range(0, ended.size, CHUNK):  # in sizes that are powers of two, so that few shapes are compiled
            size = min(CHUNK, ended.size - start)
            rows = start + np.arange(1 << (size - 1).bit_length()) % size
            part = {name: array[rows] for name, array in seen.items()}
            bonus[start : start + size] = np.asarray(self._bonus(snapshot, part))[:size]
        return np.where(ended, np.float32(0), bonus.reshape(ended.shape))

    def advance(self, batch: Any, hosts: Any) -> None:
        assert self._update is not None
        self._check_finite()
        self._state, self._metrics = self._update(self._state, batch.arrays.rollouts.observations)
        self._snapshot = local_copy(self._state)

    def _check_finite(self) -> None:
        """Raises UserError if the last update was not finite; it has been computed by now, so this does not wait."""
        if self._metrics and not self._metrics["finite"]:
            raise UserError(
                f"the loss of random network distillation is not finite after {int(self._snapshot.updates):,} updates: "
                "begin another --workdir, with a smaller --config.policy.rnd.learning_rate"
            )

    def arrays(self) -> NoveltyState:
        return self._snapshot

    def facts(self) -> Facts:
        return self._facts

    def restore(self, arrays: Any, facts: Facts) -> None:
        try:
            self._begin(rebuild(self._snapshot, leaves_by_path(arrays), Path("sources/rnd")))
        except UserError as error:
            raise UserError(
                f"the networks of the reward source 'rnd' in the checkpoint differ: {error} (--config.policy.rnd, "
                "--workdir)"
            ) from error

    def figures(self) -> dict[str, float]:
        state, found = self._snapshot, {"rnd_updates": float(self._snapshot.updates)}
        if self._metrics:
            found["rnd_loss"] = float(self._metrics["loss"])
        return found | {
            "rnd_error_mean": float(state.errors.mean),
            "rnd_error_std": float(state.errors.variance) ** 0.5,
        }

    def about(self) -> Facts:
        return {"updates": int(self._snapshot.updates), "checksum": sum_of_arrays(self._snapshot)}
