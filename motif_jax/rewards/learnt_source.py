"""The learnt reward as a reward source: the observations that it reads, and the rewards of rollouts' steps."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.captions import CaptionIndex, distinct_messages
from motif_jax.devices.checkpoints import find_saved
from motif_jax.devices.releases import is_release
from motif_jax.envs.world import waited
from motif_jax.files import checkpoint_steps
from motif_jax.networks.reward import inputs_beside, observations_beside
from motif_jax.rewards.learnt import Reward, load_reward, reward_from
from motif_jax.rewards.section import RewardsSection
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.rewards.statistics import LEAST_TIMES
from motif_jax.structs import UserError, naming


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


class Captioned(RewardSource):
    """worth(message) / n^exponent, where n counts the message's appearances in the episode, this one included."""

    caption_value = "worth"

    def __init__(self, count_exponent: float, one_step_late: bool):
        """`one_step_late`: as published, reward a step for the message before its action."""
        self._exponent, prefix = float(count_exponent), "" if one_step_late else "event_"
        self.message, self._count = f"{prefix}message", f"{prefix}message_count"
        self.observations = (self.message, self._count)

    def worth(self, messages: np.ndarray) -> np.ndarray:
        """The worth of messages, before the division by counts. [N, 256] uint8 -> [N] float32"""
        raise NotImplementedError

    def moments(self, rollouts: Arrays) -> Arrays:
        """See `RewardSource`: the worth of each step's message, and its counts."""
        steps = len(rollouts["reward"])
        messages, counts = rollouts[self.message][:steps], rollouts[self._count][:steps]
        played = ~waited(rollouts["action"])  # a game that waits shows its message again
        worth = np.zeros(counts.shape, np.float32)
        worth[played] = self.worth(messages[played])
        return {"worth": worth, "counts": counts}

    def shape(self, moments: Mapping[str, Any]) -> Any:
        return moments["worth"] / moments["counts"] ** self._exponent

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        return np.asarray(self.shape(self.moments(rollouts)))


def captioned_facts(section: RewardsSection) -> Facts:
    """Facts that rewards depend on, beside the worth of messages."""
    return {"count_exponent": section.count_exponent, "one_step_late": bool(section.reference_alignment)}


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


class LearntSource(RewardSource):
    """Computes learnt rewards for rollouts' steps. They stay the same during training, so no snapshot is needed."""

    is_learnt, caption_value = True, "z"

    def __init__(self, reward: Reward, mix: Mix, one_step_late: bool):
        """`one_step_late`: as published, a step is rewarded for the message shown before its action, rather than for
        the one that the action led to; the last message of an episode is then never rewarded.
        """
        self.reward, self.mix, self._one_step_late = reward, mix, one_step_late
        self._prefix = "" if one_step_late else "event_"
        self.table: RewardTable | None = None
        if reward.reads_only_messages:
            self.table = RewardTable(lambda messages: reward(messages).normalised, reward.captions)
        self._needed = ["message", *observations_beside(reward.options), "message_count"]
        self.observations = tuple(f"{self._prefix}{name}" for name in self._needed)

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
        inputs = {name: rollouts[f"{self._prefix}{name}"][:steps] for name in self._needed}
        counts = inputs.pop("message_count")
        if self.table is not None:
            return {"z": self.table(inputs["message"]), "counts": counts}
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in inputs.items()}
        z = self.reward(flat["message"], **inputs_beside(self.reward.options, flat)).normalised
        return {"z": z.reshape(counts.shape), "counts": counts}

    def shape(self, moments: Mapping[str, Any]) -> Any:
        return intrinsic_reward(moments["z"], moments["counts"], self.mix)

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        return self.shape(self.moments(rollouts))

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
    threshold = float("-inf")
    if reward and section.threshold_quantile >= 0:
        threshold = reward.statistics.quantile(section.threshold_quantile)
    return Mix(
        best=best_value(reward) if reward and section.pay == "share" else 0.0,
        extrinsic=section.extrinsic_coefficient,
        intrinsic=section.intrinsic_coefficient if reward else 0.0,
        scale=section.reward_scale,
        clip=section.reward_clip,
        threshold=threshold,
        count_exponent=section.count_exponent,
    )


def best_value(reward: Reward) -> float:
    """The highest normalised reward of captions that training showed often, to measure shares by."""
    best = 0.0
    if reward.reads_only_messages and reward.statistics.anchor is not None:
        often = reward.counts >= min(LEAST_TIMES, int(reward.counts.max(initial=0)))
        best = float(reward.table().normalised[often].max(initial=0))
    if best <= 0:
        raise UserError(
            "shares of the best reward need a reward that reads messages alone, and pays a moment without a message 0 "
            "and others more: train one with --config.reward.anchor=neutral (--config.policy.pay)"
        )
    return best


def reward_checksum(reward: Reward) -> str:
    """A SHA-256 of parameters and statistics, to check that a policy is trained with the same reward throughout."""
    fields = ", ".join(f"{name}={value!r}" for name, value in reward.statistics.record().items())
    digest = hashlib.sha256(f"RewardStatistics({fields})".encode())
    for leaf in jax.tree.leaves(reward.params):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
