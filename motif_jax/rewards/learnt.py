"""A trained reward model for agents, evaluation and notebooks: texts in, values out.

reward = load_reward("runs/score")
reward(["You kill the newt!", "It's a wall."])      # raw and normalised values
reward.top(20)                                      # the captions of the data with the highest values
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, decode, encode
from motif_jax.devices.checkpoints import find_saved, read_saved
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.devices.releases import usable
from motif_jax.rewards.model import make_reward_model, make_value
from motif_jax.rewards.statistics import RewardStatistics, read_statistics
from motif_jax.rewards.torch_format import write_experiment
from motif_jax.structs import UserError

CHUNK = 1024  # moments valued at a time


class Values(NamedTuple):
    """Rewards of B messages."""

    raw: np.ndarray  # [B] as the network gives them
    normalised: np.ndarray  # [B] variance 1 over the training pairs; 0 for the neutral moment, or else on average


class Liked(NamedTuple):
    """A caption of the training data, with its reward."""

    text: str
    value: float  # normalised
    times: int  # how often training showed it


class Reward:
    """A trained reward. Call it with captions; `statistics` has its mean, variance and quantiles over the data."""

    def __init__(self, options: Mapping[str, Any], params: Any, statistics: RewardStatistics, captions: np.ndarray,
                 counts: np.ndarray, facts: Mapping[str, Any]):  # fmt: skip
        """Called by `load_reward`, with the contents of a checkpoint."""
        self.options, self.params, self.statistics, self.facts = dict(options), params, statistics, dict(facts)
        self.captions, self.counts = captions, counts  # of the training data. [U, 256] uint8, [U] int32
        self._value = make_value(make_reward_model(options, 0)[0])

    @property
    def reads_only_messages(self) -> bool:
        """Whether a caption is enough to give a value."""
        return not (self.options["blstats"] or self.options["crop"] or self.options["glyphs"])

    def __call__(self, captions: Iterable[str] | np.ndarray, **more: np.ndarray) -> Values:
        """Computes the rewards of messages.

        Args:
          captions: texts, or messages as NLE gives them. [B, 256] uint8
          more: further inputs of the reward: `vector` [B, 27] (scaled), `blstats` [B, 27], `glyphs` [B, 21, 79].

        Returns:
          Raw and normalised rewards.
        """
        messages = as_messages(captions)
        needed = {"vector": self.options["blstats"], "blstats": self.options["crop"]}
        needed["glyphs"] = self.options["crop"] or self.options["glyphs"]
        for name, reads in needed.items():
            if bool(reads) != (name in more) or (reads and len(more[name]) != len(messages)):
                raise TypeError(f"this reward reads {f'one {name!r} per caption' if reads else f'no {name!r}'}")
        raw = np.empty(len(messages), np.float32)
        for start in range(0, len(messages), CHUNK):  # in sizes that are powers of two, so that few shapes are compiled
            size = min(CHUNK, len(messages) - start)
            rows = start + np.arange(1 << (size - 1).bit_length()) % size
            inputs = {name: np.asarray(array)[rows] for name, array in more.items()}
            values = self._value(self.params, messages[rows], np.arange(len(rows)), inputs)
            raw[start : start + size] = np.asarray(values)[:size]
        return Values(raw, self.statistics.normalise(raw).astype(np.float32))

    def table(self) -> Values:
        """Values of `captions`, those of the training data; for rewards that read messages alone. [U]"""
        return self(self.captions)

    def top(self, number: int = 20) -> list[Liked]:
        """The captions of the training data with the highest rewards, highest first."""
        return self._ranked(number, -1)

    def bottom(self, number: int = 20) -> list[Liked]:
        """The captions of the training data with the lowest rewards, lowest first."""
        return self._ranked(number, 1)

    def _ranked(self, number: int, sign: int) -> list[Liked]:
        values = self.table().normalised
        seen = np.flatnonzero(self.counts > 0)
        order = seen[np.argsort(sign * values[seen], kind="stable")][:number]
        return [Liked(decode(self.captions[at]), float(values[at]), int(self.counts[at])) for at in order]


def load_reward(path: str | Path, which: str | int = "last") -> Reward:
    """Loads a reward of `--stage=train_reward`; only the checkpoint is needed. Characters outside Latin-1 read as "?".

    Args:
      path: a workdir, its `reward` directory, a directory of checkpoints, or a release such as motif_jax/quickstart.
      which: "last", "best" (least validation loss) or the number of an epoch.
    """
    directory = find_saved(Path(path), "reward")
    _, checkpoint, facts = read_saved(directory, "reward", str(which))
    if "train" not in checkpoint or "statistics" not in facts:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of a reward")
    with usable(directory):
        return reward_from(checkpoint | {"params": checkpoint["train"]["params"]}, facts, facts, directory)


def reward_from(arrays: Mapping[str, Any], facts: Mapping[str, Any], more: Mapping[str, Any], place: Path) -> Reward:
    """The reward of a checkpoint at `place`; `more`: its `facts`."""
    _, like = make_reward_model(facts["model"], 0)
    params = rebuild(like, leaves_by_path(arrays["params"]), place)
    statistics = read_statistics(facts["statistics"], place)
    return Reward(facts["model"], params, statistics, arrays["captions"], arrays["counts"], more)


def export_reward(reward: Reward, directory: str | Path) -> Path:
    """Writes a reward that reads only messages in the published system's format; returns the checkpoint's path."""
    if reward.options["message"] != "lt_cnn" or not reward.reads_only_messages:
        raise UserError("only a reward of the default network, which reads messages alone, has a place in that format")
    arrays = {key: np.asarray(array) for key, array in leaves_by_path(reward.params).items()}
    statistics = reward.statistics._asdict() | {"mean": reward.statistics.zero}  # that format has no anchor
    return write_experiment(Path(directory), arrays, reward.facts["epoch"], statistics)


def as_messages(captions: Iterable[str] | np.ndarray) -> np.ndarray:
    """Encodes texts as NLE's messages; arrays of messages are returned as they are. [B, 256] uint8"""
    if isinstance(captions, np.ndarray) and captions.dtype == np.uint8:
        if captions.ndim != 2 or captions.shape[1] != WIDTH:
            raise TypeError(f"messages must be [B, {WIDTH}] uint8, not {captions.shape}")
        return captions
    texts = [] if isinstance(captions, str | bytes) else list(captions)
    if isinstance(captions, str | bytes) or not all(isinstance(text, str) for text in texts):
        raise TypeError("give a list of texts, or messages of [B, 256] uint8")
    return np.array([encode(text) for text in texts], np.uint8).reshape(-1, WIDTH)
