"""The learnt reward: texts in, values out; and as a reward source of rollouts' steps.

reward = load_reward("runs/score")
reward(["You kill the newt!", "It's a wall."])      # raw and normalised values
reward.top(20)                                      # the captions of the data with the highest values
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.captions import WIDTH, CaptionIndex, decode, distinct_messages, encode
from motif_jax.devices.checkpoints import read_saved
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.devices.releases import find_saved, is_release, usable
from motif_jax.files import checkpoint_steps
from motif_jax.networks.reward import inputs_beside, observations_beside
from motif_jax.rewards.preference import in_chunks, make_reward_model, make_value
from motif_jax.rewards.section import RewardsSection
from motif_jax.rewards.source import Arrays, Captioned, Facts, Setting
from motif_jax.rewards.statistics import LEAST_TIMES, RewardStatistics, read_statistics
from motif_jax.structs import UserError, naming

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
        return not observations_beside(self.options)

    def __call__(self, captions: Iterable[str] | np.ndarray, **more: np.ndarray) -> Values:
        """The rewards of texts, or of messages as NLE gives them. [B, 256] uint8

        `more`: further inputs of the reward: `vector` [B, 27] (scaled), `blstats` [B, 27], `glyphs` [B, 21, 79].
        """
        if isinstance(captions, str):  # its letters would be valued
            raise TypeError("give a list of texts, or messages of [B, 256] uint8")
        if isinstance(captions, np.ndarray) and captions.dtype == np.uint8:
            messages = captions
        else:
            messages = np.array([encode(text) for text in captions], np.uint8).reshape(-1, WIDTH)
        if messages.shape[1:] != (WIDTH,) or any(len(array) != len(messages) for array in more.values()):
            raise TypeError(f"give texts, or messages of [B, {WIDTH}] uint8, and a row of each further input per text")

        def value(rows: np.ndarray) -> Any:
            inputs = {name: np.asarray(array)[rows] for name, array in more.items()}
            return self._value(self.params, messages[rows], np.arange(len(rows)), inputs)

        raw = in_chunks(value, len(messages), CHUNK)
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

    `path`: a workdir, its `reward` directory, a directory of checkpoints, or a release such as motif_jax/quickstart.
    `which`: "last", "best" (least validation loss) or the number of an epoch.
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


# ---- the source


class Mix(NamedTuple):
    """The agent's reward from the game's and the learnt one (Motif, section 3; defaults from the released code).

    r = extrinsic * clip(scale * r_game) + intrinsic * f, with f from `intrinsic_reward`
    """

    extrinsic: float = 1.0  # coefficients
    intrinsic: float = 0.1
    scale: float = 1.0  # factor of the game's reward, before it is clipped to [-clip, clip]
    clip: float = 10.0
    threshold: float = float("-inf")  # normalised rewards up to this count as 0
    count_exponent: float = 3.0  # beta
    best: float = 0.0  # normalised reward of the best captions; 0: rewards, rather than shares, are paid


LEAST = 0.1  # shares up to this size pay nothing
AIM = 0.8  # from this size on, repetitions pay in full


def intrinsic_reward(z: Any, counts: Any, mix: Mix) -> Any:
    """The learnt reward of each step, before its coefficient is applied. [...], of NumPy or of JAX

        f = z / n^beta where z > threshold, else 0

    With `best` > 0, f is the share s = z / best of the reward of the best captions instead, for rewards that pay a
    moment without a message 0. Shares of at most 0.1 in size pay nothing, and pay grows from 0 at that limit:

        g = (s - s clipped to [-0.1, 0.1]) / 0.9
        f = g where |s| >= 0.8, else g / n^beta

    So an aim of the goal pays as much the second time, and the smallest steps towards it pay nothing. Small fines are
    left out as well: they make agents unlearn a key, such as the one for going down, before they find the place to use
    it. Pay must not jump at the limit, because the rewards of two seeds may lie on either side of it.

    Args:
      z: normalised reward of each step's message. [...]
      counts: n, appearances of the message in its episode, this one included, so at least 1. [...]
    """
    if mix.best:
        share = z / mix.best
        paid = (share - share.clip(-LEAST, LEAST)) / (1 - LEAST)
        aims = abs(share) >= AIM
        return paid * aims + paid * ~aims / counts**mix.count_exponent
    return (z > mix.threshold) * z / counts**mix.count_exponent


def extrinsic_reward(reward: Any, mix: Mix) -> Any:
    """The game's reward of each step, scaled and clipped, before its coefficient is applied. [...]"""
    return (reward * mix.scale).clip(-mix.clip, mix.clip)


CAPACITY = 1 << 19  # messages: 128 MiB


class RewardTable:
    """Maps messages to rewards; call it with messages. They repeat, so nearly all are in its cache. Not thread-safe."""

    def __init__(self, value: Callable[[np.ndarray], np.ndarray], messages: np.ndarray, *, capacity: int = CAPACITY):
        """`value`: the network, [K, 256] uint8 -> [K]. `messages`: known ones, which are never removed. [U, 256]"""
        self.misses = 0  # number of messages for which the network had to run
        self._value, self._capacity, self._kept = value, max(capacity, len(messages)), messages
        self._index, self._values = CaptionIndex(), np.zeros(0, np.float32)
        self._forget()

    def __len__(self) -> int:
        return len(self._index)

    def __call__(self, messages: np.ndarray) -> np.ndarray:
        """[..., 256] uint8 -> [...] float32"""
        flat = np.ascontiguousarray(messages).reshape(-1, messages.shape[-1])
        rows = self._index.lookup.find(flat)
        rewards = self._values[rows] if len(self) else np.zeros(len(flat), np.float32)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            new, inverse, _ = distinct_messages(flat[missing])
            values = self._value(new)
            self.misses += len(new)
            rewards[missing] = values[inverse]
            self._add(new, values)
        return rewards.reshape(messages.shape[:-1])

    def _add(self, messages: np.ndarray, values: np.ndarray) -> None:
        if len(self) + len(messages) > self._capacity:
            self._forget()
        if len(self) + len(messages) <= self._capacity:
            added = self._index.add(messages)
            self._values = np.append(self._values, values[added].astype(np.float32))

    def _forget(self) -> None:
        """Removes all messages except the known ones."""
        self._index.clear()
        self._values = self._values[:0]
        if len(self._kept):
            distinct, _, _ = distinct_messages(self._kept)
            self._add(distinct, self._value(distinct))


class LearntSource(Captioned):
    """Computes learnt rewards for rollouts' steps. They stay the same during training, so no snapshot is needed."""

    is_learnt, caption_value = True, "z"

    def __init__(self, reward: Reward, mix: Mix, one_step_late: bool):
        """`one_step_late`: as published, a step is rewarded for the message shown before its action, rather than for
        the one that the action led to; the last message of an episode is then never rewarded.
        """
        super().__init__(mix.count_exponent, one_step_late)
        self.reward, self.mix, self._one_step_late = reward, mix, one_step_late
        self.table: RewardTable | None = None
        if reward.reads_only_messages:
            self.table = RewardTable(lambda messages: reward(messages).normalised, reward.captions)
        prefix = self.message.removesuffix("message")
        self._beside = {name: f"{prefix}{name}" for name in observations_beside(reward.options)}
        self.observations = (self.message, *self._beside.values(), self._count)

    @classmethod
    def make(cls, setting: Setting) -> LearntSource:
        """Loads the reward that the config names."""
        section = setting.config.policy
        source, which = Path(section.reward_dir or setting.workdir), section.reward_checkpoint
        with naming("--config.policy.reward_dir, .reward_checkpoint"):
            reward, directory = load_reward(source, which), find_saved(source, "reward")
        newest = reward.facts["epoch"] if is_release(directory) else checkpoint_steps(directory)[-1]
        if which == "last" and reward.facts["epoch"] != newest:
            what = f"the last checkpoint of the reward in {str(source)!r}, {newest}, is damaged"
            raise UserError(f"{what}: choose --config.policy.reward_checkpoint={reward.facts['epoch']}")
        return cls(reward, make_mix(section, reward), section.reference_alignment)

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> LearntSource:
        reward = reward_from(arrays, facts, facts["facts"], Path("sources/learnt"))
        return cls(reward, Mix(**facts["mix"]), facts["one_step_late"])

    def moments(self, rollouts: Arrays) -> Arrays:
        """Normalised rewards `z`, and message `counts`. [T, B] each"""
        steps = len(rollouts["reward"])
        messages, counts = rollouts[self.message][:steps], rollouts[self._count][:steps]
        if self.table is not None:
            return {"z": self.table(messages), "counts": counts}
        arrays = {name: rollouts[key][:steps] for name, key in self._beside.items()}
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
        z = self.reward(messages.reshape(-1, WIDTH), **inputs_beside(self.reward.options, flat)).normalised
        return {"z": z.reshape(counts.shape), "counts": counts}

    def shape(self, moments: Mapping[str, Any]) -> Any:
        return intrinsic_reward(moments["z"], moments["counts"], self.mix)

    def arrays(self) -> dict[str, Any]:
        return {"params": self.reward.params, "captions": self.reward.captions, "counts": self.reward.counts}

    def facts(self) -> Facts:
        return {
            "model": self.reward.options,
            "statistics": self.reward.statistics.record(),
            "checksum": reward_checksum(self.reward),
            "mix": self.mix._asdict(),
            "facts": {"epoch": self.reward.facts.get("epoch")},
            "one_step_late": bool(self._one_step_late),
        }

    def restore(self, arrays: Any, facts: Facts) -> None:
        """Raises UserError unless the learnt reward is the one with which training began."""
        if facts["checksum"] != reward_checksum(self.reward):
            what = "the learnt reward has changed since this policy's training began"
            raise UserError(f"{what}: choose another --workdir, or the same reward (--config.policy.reward_dir)")

    def figures(self) -> dict[str, float]:
        return {"messages": len(self.table), "new_messages": self.table.misses} if self.table else {}

    def about(self) -> Facts:
        """Checksum, goal, threshold and exponent; equal checksums mean equal rewards."""
        parts = [reward_checksum(self.reward), self.mix.threshold, self.mix.count_exponent, *self.observations]
        parts += [self.mix.best] if self.mix.best else []
        return {
            "reward": hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
            "goal": self.reward.facts.get("config", {}).get("annotate", {}).get("goal"),
            "threshold": float(self.mix.threshold) if math.isfinite(self.mix.threshold) else None,
            "count_exponent": self.mix.count_exponent,
        }


NO_REWARD = dict.fromkeys(("reward", "goal", "threshold", "count_exponent"))  # `about` where there is no learnt reward


def make_mix(section: RewardsSection, reward: Reward | None) -> Mix:
    """Reads from the config how the game's reward and the learnt reward are combined."""
    threshold, best = float("-inf"), 0.0
    if reward and section.threshold_quantile >= 0:
        threshold = reward.statistics.quantile(section.threshold_quantile)
    if reward and section.intrinsic_form == "relative":
        if reward.reads_only_messages and reward.statistics.anchor is not None:
            often = reward.counts >= min(LEAST_TIMES, int(reward.counts.max(initial=0)))
            best = float(reward.table().normalised[often].max(initial=0))
        if best <= 0:
            raise UserError(
                "shares of the best reward need a reward that reads messages alone, and pays a moment without a "
                "message 0 and others more: train one with --config.reward.anchor=neutral "
                "(--config.policy.intrinsic_form)"
            )
    return Mix(
        best=best,
        extrinsic=section.extrinsic_coefficient,
        intrinsic=section.intrinsic_coefficient if reward else 0.0,
        scale=section.reward_scale,
        clip=section.reward_clip,
        threshold=threshold,
        count_exponent=section.count_exponent,
    )


def reward_checksum(reward: Reward) -> str:
    """A SHA-256 of parameters and statistics, to check that a policy is trained with the same reward throughout."""
    fields = ", ".join(f"{name}={value!r}" for name, value in reward.statistics.record().items())
    digest = hashlib.sha256(f"RewardStatistics({fields})".encode())
    for leaf in jax.tree.leaves(reward.params):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
