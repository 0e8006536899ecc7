"""A trained policy that plays one game, as notebooks use it.

env = gymnasium.make("motif_jax/NetHackScore-v1")   # after `import motif_jax.envs`
policy = load_policy("runs/score")
observation, _ = env.reset(seed=7)
policy.begin()                                      # a new episode: it remembers nothing
observation, *_ = env.step(policy(observation).action)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.envs.settings import make_world
from motif_jax.envs.world import plain_shape, select_specs
from motif_jax.networks.kinds import FIXED, from_record
from motif_jax.policies.model import probabilities, read_policy
from motif_jax.rewards.learnt import Reward


class Act(NamedTuple):
    """The policy's answer to one observation."""

    action: int
    probabilities: np.ndarray  # of all actions. [A]
    value: float  # sum of discounted rewards that the policy expects


class Policy:
    """A trained policy that plays one game. Call it with each observation; `facts` says how it was trained."""

    def __init__(self, model: Any, facts: Mapping[str, Any], reward: Reward | None, seed: int = 0):
        """Called by `load_policy`, with what the checkpoint contains."""
        self.facts, self.reward = dict(facts), reward
        self.reads: tuple[str, ...] = model.reads  # names of the observations
        options, self._encode = facts["model"], model.encode
        if "reads" in options:
            self._specs = from_record(options["reads"])
        elif options["network"] in FIXED:  # it reads NetHack's frames
            self._specs = select_specs(make_world({}).specs, self.reads)
        else:  # a prompt, of any length
            self._specs = {}
        self._weights, self._core_size = jax.device_put((model.params, model.frozen)), model.core_size
        self._prepared = jax.jit(model.prepare)(*self._weights)
        self._step = jax.jit(model.step)
        self._rng = np.random.default_rng(seed)
        self.begin()

    def begin(self) -> None:
        """Starts a new episode: resets the recurrent state."""
        self._core, self._first = np.zeros((1, self._core_size), np.float32), True

    def __call__(self, observation: Mapping[str, np.ndarray], greedy: bool = False) -> Act:
        """Chooses an action for an observation.

        Args:
          observation: of one game, as the environments of `motif_jax.envs` give it, or in the shapes of
            `World.specs`; more than `reads` does no harm. A prompt may also be a `str`.
          greedy: take the most probable action instead of sampling one.
        """
        missing = [name for name in self.reads if name not in observation]
        if missing:
            raise TypeError(f"this policy reads {', '.join(self.reads)}; {missing[0]!r} is not there")
        seen = {name: as_bytes(observation[name])[None] for name in self.reads if name not in self._specs}
        for name, spec in self._specs.items():
            array = np.asarray(observation[name])
            if array.shape not in (spec.shape, plain_shape(spec.shape)):
                raise TypeError(f"{name!r} of one game is of shape {plain_shape(spec.shape)}, and not {array.shape}")
            seen[name] = array.reshape(1, *spec.shape)
        first = np.array([self._first])
        logits, values, self._core = self._step(*self._weights, self._encode(seen), first, self._core, self._prepared)
        odds = probabilities(np.asarray(logits[0], np.float64))
        self._first = False
        action = int(odds.argmax()) if greedy else int(self._rng.choice(len(odds), p=odds))
        return Act(action, odds, float(values[0]))


def as_bytes(prompt: str | np.ndarray) -> np.ndarray:
    """A prompt as a world gives it. [bytes] uint8"""
    return np.frombuffer(prompt.encode(), np.uint8) if isinstance(prompt, str) else np.asarray(prompt, np.uint8)


def load_policy(path: str | Path, which: str | int = "last", seed: int = 0) -> Policy:
    """Loads a policy of `--stage=train_policy`; only the checkpoint is needed.

    It plays one game: `policy.begin()` starts an episode, during which it remembers what it has seen;
    `policy(observation)` gives an `Act`: the action to take, the probabilities of all actions, and the value expected.

    Args:
      path: a workdir, its `policy` directory, a directory of checkpoints, or a release such as motif_jax/quickstart.
      which: "last", or the number of a checkpoint, which is its number of training steps.
      seed: for sampling the actions.
    """
    model, facts, sources = read_policy(path, str(which))
    return Policy(model, facts, sources.learnt.reward if sources.learnt else None, seed)
