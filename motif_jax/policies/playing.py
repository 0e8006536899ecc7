"""A trained policy for notebooks and scripts: it plays one game, or many at once.

env = gymnasium.make("motif_jax/NetHackScore-v1")   # after `import motif_jax.envs`
policy = load_policy("runs/score")
observation, _ = env.reset(seed=7)
policy.begin()                                      # a new episode: resets the recurrent state
observation, *_ = env.step(policy(observation).action)

many = gymnasium.make_vec("motif_jax/NetHackScore-v1", 16, vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
observations, _ = many.reset(seed=7)
policy.begin(16)                                    # sixteen games: from now on, answers are arrays
observations, _, ended, cut, _ = many.step(policy(observations).action)
policy.restart(ended | cut)                         # new episodes in these games
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.world import plain_shape, select_specs
from motif_jax.envs.worlds import make_world
from motif_jax.networks.actions import draw
from motif_jax.networks.kinds import BEHAVIOUR, FIXED, from_record
from motif_jax.policies.model import probabilities, read_policy
from motif_jax.rewards.learnt_source import Reward
from motif_jax.rewards.registry import behaviours_of, find_behaviour, named
from motif_jax.structs import ArraySpec, UserError

BYTES = ArraySpec((), "uint8")  # of a prompt


class Act(NamedTuple):
    """The policy's answer to the observations of one game, or of B games."""

    action: int | np.ndarray  # [] or [B]; several choices or numbers: [D] or [B, D]
    probabilities: np.ndarray | None  # of all actions, [A] or [B, A]; None for several choices or numbers
    value: float | np.ndarray  # expected sum of discounted rewards. [] or [B]
    option: str | list[str] = ""  # which option or mixture chose the action, of a policy with options


class Policy:
    """A trained policy. Call it with each observation; `metadata` describes its training."""

    def __init__(
        self, model: Any, metadata: Mapping[str, Any], reward: Reward | None, seed: int = 0, option: str | None = None
    ):
        self.metadata, self.reward = dict(metadata), reward
        self.reads: tuple[str, ...] = model.reads  # names of the observations
        spec, self._encode = metadata["model"], model.encode
        self._specs = from_record(spec.get("reads", {}))  # empty: a prompt, of any length
        if spec["network"] in FIXED:  # NetHack's frames
            self._specs = select_specs(make_world({}).specs, self.reads)
        self._weights, self._core_size = jax.device_put((model.params, model.frozen)), model.core_size
        self._prepared = jax.jit(model.prepare)(*self._weights)
        self._step = jax.jit(model.step)
        self._rng = np.random.default_rng(seed)
        plan = spec.get("options", {})
        self.options: tuple[str, ...] = tuple(plan.get("names", ()))
        self._heads, self._space = model.options, model.space
        self._only = None if option is None else find_behaviour(option, plan)
        self._mixture = self._only if isinstance(self._only, tuple) else None
        self._names = [named(self.options, self._mixture)] if self._mixture else behaviours_of(plan)
        self.begin()

    @property
    def facts(self) -> dict[str, Any]:
        """The name that `metadata` had before 0.2."""
        return self.metadata

    def __repr__(self) -> str:
        model, task = self.metadata["model"], self.metadata.get("config", {}).get("env", {}).get("task")
        steps = self.metadata.get("progress", {}).get("env_steps")
        words = f"network={model['network']!r} num_actions={model['num_actions']} reads={list(self.reads)}"
        words += (f" task={task!r}" if task else "") + (f" env_steps={steps:,}" if steps else "")
        return f"<Policy {words} reward={self.reward is not None}>"

    def begin(self, games: int | None = None) -> None:
        """Starts new episodes: resets the recurrent state.

        `games`: the number of games played at once; observations and answers are arrays of this length. None: one game,
        with single observations and answers.
        """
        self._games, count = games, 1 if games is None else games
        self._core, self._first = np.zeros((count, self._core_size), np.float32), np.ones(count, bool)
        self._charge, self._left = np.zeros((2, count), np.int32)

    def restart(self, which: np.ndarray) -> None:
        """Starts new episodes in the games where `which` is true. [B] bool"""
        which = np.asarray(which)
        if which.dtype != bool or which.shape != self._first.shape:
            raise TypeError(f"restart takes an array of {len(self._first)} bool, one per game, not {which!r}")
        self._first = self._first | which

    def __call__(self, observation: Mapping[str, Any], greedy: bool = False) -> Act:
        """Chooses an action for an observation; after `begin(games)`, for each game.

        One game: arrays as the environments of `motif_jax.envs` return them, or in the shapes of `World.specs`; a
        prompt may also be a `str`. Many games: arrays with one more leading axis, as gymnasium's vector environments
        return them, or a list with one entry per game. Names beyond `reads` are ignored. `greedy`: take the most
        probable action instead of sampling one.
        """
        if missing := {*self.reads} - observation.keys():
            raise TypeError(f"this policy also reads {', '.join(sorted(missing))}")
        seen = {name: self._read(name, observation[name]) for name in self.reads}
        if self._heads:
            self._decide(seen, greedy)
        (outputs, *_), values = self._look(seen, np.ones_like(self._first))
        if self._space:
            key = jax.random.key(self._rng.integers(2**31))
            odds, actions = None, np.asarray(draw(self._space, key, outputs, greedy))
        else:
            odds = _odds(outputs)
            actions = self._draw(odds, greedy)
        names = [self._names[number] for number in self._charge] if self._heads else ""
        if self._games is not None:
            return Act(actions, odds, values, names)
        action, of_one = (actions[0], None) if odds is None else (int(actions[0]), odds[0])
        return Act(action, of_one, float(values[0]), names[0] if names else "")

    def _look(self, seen: Mapping[str, np.ndarray], which: np.ndarray) -> tuple[list[Any], np.ndarray]:
        """Outputs for all choices, and values, of all games; updates the memory of the games in `which` [B]."""
        behaviour = {BEHAVIOUR: np.asarray(self._heads.behaviour(self._charge, self._mixture))} if self._heads else {}
        logits, values, core = self._step(
            *self._weights, {**self._encode(seen), **behaviour}, self._first, self._core, self._prepared
        )
        self._core = np.where(which[:, None], core, self._core)
        self._first = self._first & ~which
        return self._heads.split(logits) if self._heads else [logits], np.asarray(values)

    def _draw(self, odds: np.ndarray, greedy: bool) -> np.ndarray:
        return odds.argmax(-1) if greedy else np.array([self._rng.choice(len(row), p=row) for row in odds])

    def _decide(self, seen: Mapping[str, np.ndarray], greedy: bool) -> None:
        """Lets the controller choose an option in games where none is in charge, before the action is chosen."""
        if self._only is not None:
            self._charge[:] = 0 if self._mixture else self._only
            return
        decides = self._first | (self._left == 0)
        if decides.any():
            self._charge[decides] = self._heads.options
            (_, *heads), _ = self._look(seen, decides)
            option, length = self._heads.joint([self._draw(_odds(head), greedy) for head in heads])
            self._charge = np.where(decides, option, self._charge).astype(np.int32)
            self._left = np.where(decides, np.array(self._heads.lengths)[length], self._left).astype(np.int32)
        self._left -= 1

    def _read(self, name: str, given: Any) -> np.ndarray:
        """One observation of all games, in the shape for the network. [B, ...]"""
        single, count = self._games is None, len(self._first)
        if not single and len(given) != count:  # such as one text instead of a list
            raise TypeError(f"{name!r} must have {count} games, not {len(given)}: policy.begin(games) sets the number")
        if name not in self._specs:
            prompts = [
                np.frombuffer(prompt.encode(), np.uint8) if isinstance(prompt, str) else checked(name, prompt, BYTES)
                for prompt in ([given] if single else given)
            ]
            rows = np.zeros((count, max(map(len, prompts))), np.uint8)  # as a world's prompts: padded with zeros
            for row, prompt in zip(rows, prompts, strict=True):
                row[: len(prompt)] = prompt
            return rows
        spec, array = self._specs[name], np.asarray(given)
        shape = array.shape if single else array.shape[1:]
        if shape not in (spec.shape, plain_shape(spec.shape)):
            raise TypeError(f"{name!r} of one game must have the shape {plain_shape(spec.shape)}, not {shape}")
        return checked(name, array, spec).reshape(count, *spec.shape)


def _odds(logits: Any) -> np.ndarray:
    """Probabilities, precise enough to sum to 1 for NumPy's generator."""
    return probabilities(np.asarray(logits, np.float64))


def checked(name: str, given: Any, spec: ArraySpec) -> np.ndarray:
    """An observation in the type of its spec; raises TypeError for numbers that the spec does not allow."""
    array, dtype = np.asarray(given), np.dtype(spec.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        converted: Any = array.astype(dtype) if array.dtype.kind in "biuf" else None
    fits = converted is not None and (np.isfinite(converted) if dtype.kind == "f" else converted == array).all()
    if not fits or (spec.categories and not ((converted >= 0) & (converted < spec.categories)).all()):
        limit = f" from 0 to {spec.categories - 1}" if spec.categories else ""
        raise TypeError(f"{name!r} must have finite numbers of the type {dtype}{limit}, not {shown(given)}")
    return converted


def load_policy(
    path: str | Path, which: str | int = "last", seed: int = 0, option: str | None = None,
    mixture: str | Mapping[str, float] | None = None, trusted: str | Iterable[str] = (),
) -> Policy:  # fmt: skip
    """Loads a policy of `--stage=train_policy`, from the checkpoint alone.

    `policy.begin()` starts an episode and resets the recurrent state; `policy.begin(games)` starts many.
    `policy(observation)` returns an `Act`: the chosen action, the probabilities of all actions, and the value.

    Args:
      path: a workdir, its `policy` directory, a directory of checkpoints, or a release such as motif_jax/quickstart.
      which: "last", or the number of a checkpoint, which is its number of training steps.
      seed: for sampling the actions.
      option: the name of an option that plays alone, without the controller.
      mixture: coefficients of options, as "gold=1,stairs=0.3" or a dict, if the controller chooses mixtures.
      trusted: classes of yours (module:Class) that may be imported, such as the policy's network.
    """
    if option is not None and mixture is not None:
        raise UserError("a policy plays one option or one mixture, not both")
    if isinstance(mixture, Mapping):
        mixture = "+".join(f"{name}={weight}" for name, weight in mixture.items())
    option = option if mixture is None else mixture
    model, metadata, sources = read_policy(path, str(which), [trusted] if isinstance(trusted, str) else trusted)
    return Policy(model, metadata, sources.learnt.reward if sources.learnt else None, seed, option)
