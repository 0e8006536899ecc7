"""What people use in notebooks: `from motif_jax import load_reward, load_policy`.

reward = load_reward("runs/score")
reward(["You kill the newt!", "It's a wall."])      # raw and normalised values
reward.top(20)                                      # the captions of the data that it likes most

env = gymnasium.make("motif_jax/NetHackScore-v1")   # after `import motif_jax.envs`
policy = load_policy("runs/score")
observation, _ = env.reset(seed=7)
policy.begin()                                      # a new episode: it remembers nothing
observation, *_ = env.step(policy(observation).action)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, decode, encode
from motif_jax.checkpoint import leaves_by_path, name_of, reading
from motif_jax.envs.observations import observation_specs, plain_shape
from motif_jax.rewards.statistics import RewardStatistics
from motif_jax.structs import UserError

CHUNK = 1024  # moments valued at a time


class Values(NamedTuple):
    """Rewards of some moments."""

    raw: np.ndarray  # [B] as the network gives them
    normalised: np.ndarray  # [B] mean 0 and variance 1 over the training pairs


class Liked(NamedTuple):
    """A caption of the training data."""

    text: str
    value: float  # normalised
    times: int  # how often training showed it


class Reward:
    """A trained reward. Call it with captions; `statistics` tells what is usual over the data."""

    def __init__(self, options: Mapping[str, Any], params: Any, statistics: RewardStatistics, captions: np.ndarray,
                 counts: np.ndarray, facts: Mapping[str, Any]):  # fmt: skip
        """What `load_reward` has found."""
        from motif_jax.stages.reward_setup import make_model, make_value

        self.options, self.params, self.statistics, self.facts = dict(options), params, statistics, dict(facts)
        self.captions, self.counts = captions, counts  # of the training data. [U, 256] uint8, [U] int32
        self._value = make_value(make_model(options, 0)[0])

    @property
    def reads_only_messages(self) -> bool:
        """Whether a caption is enough to give a value."""
        return not (self.options["blstats"] or self.options["crop"] or self.options["glyphs"])

    def __call__(self, captions: Iterable[str] | np.ndarray, **more: np.ndarray) -> Values:
        """Values of messages.

        Args:
          captions: texts, or messages as NLE gives them. [B, 256] uint8
          more: what else the reward reads: `vector` [B, 27] (scaled), `blstats` [B, 27], `glyphs` [B, 21, 79].

        Returns:
          Raw and normalised rewards.
        """
        messages = as_messages(captions)
        needed = {"vector": self.options["blstats"], "blstats": self.options["crop"]}
        needed["glyphs"] = self.options["crop"] or self.options["glyphs"]
        for name, reads in needed.items():
            if bool(reads) != (name in more) or (reads and len(more[name]) != len(messages)):
                what = f"one {name!r} per caption" if reads else f"no {name!r}"
                raise TypeError(f"this reward reads {what}")
        raw = np.empty(len(messages), np.float32)
        for start in range(0, len(messages), CHUNK):  # in sizes of powers of two, so that few are compiled
            size = min(CHUNK, len(messages) - start)
            rows = np.arange(1 << (size - 1).bit_length()) % size
            part = messages[start : start + size]
            beside = {name: np.asarray(array)[start : start + size][rows] for name, array in more.items()}
            padded = part[np.arange(1 << (size - 1).bit_length()) % size]
            raw[start : start + size] = np.asarray(self._value(self.params, padded, np.arange(len(rows)), beside))[
                :size
            ]
        return Values(raw, self.statistics.normalise(raw).astype(np.float32))

    def table(self) -> Values:
        """Values of `captions`, those of the training data; for rewards that read messages alone. [U]"""
        return self(self.captions)

    def top(self, number: int = 20) -> list[Liked]:
        """The captions of the training data that are worth most, best first."""
        return self._ranked(number, -1)

    def bottom(self, number: int = 20) -> list[Liked]:
        """Those that are worth least, worst first."""
        return self._ranked(number, 1)

    def _ranked(self, number: int, sign: int) -> list[Liked]:
        values = self.table().normalised
        seen = np.flatnonzero(self.counts > 0)
        order = seen[np.argsort(sign * values[seen], kind="stable")][:number]
        return [Liked(decode(self.captions[at]), float(values[at]), int(self.counts[at])) for at in order]


def load_reward(path: str | Path, which: str | int = "last") -> Reward:
    """A reward that `--stage=train_reward` has made; nothing else is needed. Characters outside Latin-1 read as "?".

    Args:
      path: a workdir, its `reward` directory, or a directory of checkpoints.
      which: "last", "best" (least validation loss) or the number of an epoch.
    """
    return load_checkpoint(find_checkpoints(Path(path)), str(which))


class Act(NamedTuple):
    """What a policy does at a moment."""

    action: int
    probabilities: np.ndarray  # of all actions. [A]
    value: float  # discounted rewards that it expects


class Policy:
    """A trained policy that plays one game. Call it with each observation; `facts` tell how it was trained."""

    def __init__(self, model: Any, facts: Mapping[str, Any], reward: Reward | None, seed: int = 0):
        """What `load_policy` has found."""
        import jax

        self.facts, self.reward = dict(facts), reward
        self.reads: tuple[str, ...] = model.reads  # names of the observations
        self._specs = observation_specs(self.reads)
        self._params, self._core_size = model.params, model.core_size
        self._prepared = jax.jit(model.prepare)(model.params)
        self._step = jax.jit(model.step)
        self._rng = np.random.default_rng(seed)
        self.begin()

    def begin(self) -> None:
        """Forgets the episode so far."""
        self._core, self._first = np.zeros((1, self._core_size), np.float32), True

    def __call__(self, observation: Mapping[str, np.ndarray], greedy: bool = False) -> Act:
        """What to do now.

        Args:
          observation: of one game, as the environments of `motif_jax.envs` give it, or in the shapes of
            `motif_jax.envs.observations`; more than `reads` does no harm.
          greedy: take the most probable action rather than to draw one.
        """
        missing = [name for name in self.reads if name not in observation]
        if missing:
            raise TypeError(f"this policy reads {', '.join(self.reads)}; {missing[0]!r} is not there")
        seen = {}
        for name, spec in self._specs.items():
            array = np.asarray(observation[name])
            if array.shape not in (spec.shape, plain_shape(spec.shape)):
                raise TypeError(f"{name!r} of one game is of shape {plain_shape(spec.shape)}, and not {array.shape}")
            seen[name] = array.reshape(1, *spec.shape)
        first = np.array([self._first])
        logits, values, self._core = self._step(self._params, seen, first, self._core, self._prepared)
        odds = np.exp(np.asarray(logits[0], np.float64) - float(logits[0].max()))
        odds /= odds.sum()
        self._first = False
        action = int(odds.argmax()) if greedy else int(self._rng.choice(len(odds), p=odds))
        return Act(action, odds, float(values[0]))


def load_policy(path: str | Path, which: str | int = "last", seed: int = 0) -> Policy:
    """A policy that `--stage=train_policy` has made; nothing else is needed.

    It plays one game: `policy.begin()` starts an episode, of which it then remembers what it has seen;
    `policy(observation)` gives an `Act`: the action to take, the probabilities of all actions, and the value expected.

    Args:
      path: a workdir, its `policy` directory, or a directory of checkpoints.
      which: "last", or the number of a checkpoint, which are steps of training.
      seed: of the actions that are drawn.
    """
    from motif_jax.stages.policy_setup import read_policy

    return Policy(*read_policy(path, str(which)), seed)


def export_reward(reward: Reward, directory: str | Path) -> Path:
    """Writes a reward that reads messages alone as an experiment of the published system; the checkpoint's path."""
    from motif_jax.rewards.torch_format import write_experiment

    if reward.options["message"] != "lt_cnn" or not reward.reads_only_messages:
        raise UserError("only a reward of the default network, which reads messages alone, has a place in that format")
    arrays = {key: np.asarray(array) for key, array in leaves_by_path(reward.params).items()}
    return write_experiment(Path(directory), arrays, reward.facts["epoch"], reward.statistics._asdict())


def find_checkpoints(path: Path, kind: str = "reward") -> Path:
    """The directory of checkpoints of a "reward" or a "policy" that is meant."""
    for directory in (path / kind / "checkpoints", path / "checkpoints", path):
        if directory.is_dir() and any(name.name.isdecimal() for name in directory.iterdir()):
            return directory
    raise UserError(f"there is no {kind} in {str(path)!r}: no directory with checkpoints")


def load_checkpoint(directory: Path, which: str = "last") -> Reward:
    """The reward in a directory of checkpoints."""
    from motif_jax.stages.reward_setup import make_model

    with reading(directory) as checkpoints:
        _, whole, facts = checkpoints.readable(which)
    if "train" not in whole or "statistics" not in facts:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of a reward")
    _, like = make_model(facts["model"], 0)
    params = rebuild(like, leaves_by_path(whole["train"]["params"]), directory)
    statistics = RewardStatistics(**facts["statistics"])
    return Reward(facts["model"], params, statistics, whole["captions"], whole["counts"], facts)


def as_messages(captions: Iterable[str] | np.ndarray) -> np.ndarray:
    """Texts, or messages as NLE gives them, as messages. [B, 256] uint8"""
    if isinstance(captions, np.ndarray) and captions.dtype == np.uint8:
        if captions.ndim != 2 or captions.shape[1] != WIDTH:
            raise TypeError(f"messages must be [B, {WIDTH}] uint8, not {captions.shape}")
        return captions
    texts = [] if isinstance(captions, str | bytes) else list(captions)
    if isinstance(captions, str | bytes) or not all(isinstance(text, str) for text in texts):
        raise TypeError("give a list of texts, or messages of [B, 256] uint8")
    return np.array([encode(text) for text in texts], np.uint8).reshape(-1, WIDTH)


def rebuild(like: Any, by_path: dict[tuple[str, ...], Any], source: Path, flag: str = "path") -> Any:
    """Parameters in the form of the model, checked one by one."""
    import jax

    wanted, form = jax.tree_util.tree_flatten_with_path(like)
    by_path = dict(by_path)
    leaves: list[Any] = []
    for path, leaf in wanted:
        array = by_path.pop(name_of(path), None)
        array = None if array is None else np.asarray(array)
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            has = "nothing" if array is None else f"{array.shape} {array.dtype}"
            raise UserError(
                f"the checkpoint in {str(source)!r} is of another architecture: {'.'.join(name_of(path))} is {has}, "
                f"where {leaf.shape} {leaf.dtype} is due ({flag})"
            )
        leaves.append(array)
    if by_path:
        more = ".".join(sorted(by_path)[0])
        raise UserError(f"the checkpoint in {str(source)!r} is of another architecture: it also has {more} ({flag})")
    return jax.tree_util.tree_unflatten(form, leaves)
