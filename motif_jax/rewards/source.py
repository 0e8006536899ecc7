"""The learnt reward in policy training: the observations that it reads, and the rewards of rollouts' steps."""

from __future__ import annotations

import hashlib
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.checkpoint import find_checkpoints
from motif_jax.envs.nethack.observations import scale_blstats
from motif_jax.rewards.intrinsic import Mix
from motif_jax.rewards.learnt import Reward, load_reward
from motif_jax.rewards.table import RewardTable
from motif_jax.structs import UserError

Arrays = dict[str, np.ndarray]


class RewardSource:
    """Computes learnt rewards for rollouts' steps, and names the observations that must be recorded for it."""

    def __init__(self, reward: Reward, mix: Mix, one_step_late: bool):
        """Computes the rewards of the training data's captions in advance, if the reward reads only messages.

        Args:
          reward: the learnt reward.
          mix: threshold, exponent, coefficients.
          one_step_late: as published, a step is rewarded for the message shown before its action, rather than for the
            message that the action led to; the last message of an episode is then never rewarded.
        """
        self.reward, self.mix = reward, mix
        self._prefix = "" if one_step_late else "event_"
        self.table: RewardTable | None = None
        if reward.reads_only_messages:
            self.table = RewardTable(lambda messages: reward(messages).normalised, reward.captions)
        options = reward.options
        self._needs = {"message": True, "blstats": options["blstats"] or options["crop"]}
        self._needs["glyphs"] = options["crop"] or options["glyphs"]

    @property
    def observations(self) -> tuple[str, ...]:
        """Names of the observations that rollouts must record for this reward."""
        needed = [name for name, needs in self._needs.items() if needs]
        return tuple(f"{self._prefix}{name}" for name in [*needed, "message_count"])

    def __call__(self, arrays: Arrays) -> Arrays:
        """Normalised rewards `z` and message `counts` of rollouts' steps. [T, B] each"""
        steps = len(arrays["reward"])
        moments = {name: arrays[f"{self._prefix}{name}"][:steps] for name, needs in self._needs.items() if needs}
        counts = arrays[f"{self._prefix}message_count"][:steps]
        if self.table is not None:
            return {"z": self.table(moments["message"]), "counts": counts}
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in moments.items()}
        message, more = flat.pop("message"), {}
        if self.reward.options["blstats"]:
            more["vector"] = scale_blstats(flat["blstats"])
        more |= {name: array for name, array in flat.items() if name != "blstats" or self.reward.options["crop"]}
        z = self.reward(message, **more).normalised
        return {"z": z.reshape(counts.shape), "counts": counts}


def make_reward_source(config: ConfigDict, workdir: Path) -> RewardSource | None:
    """Loads the reward that the config names; None if its coefficient is 0."""
    section = config.policy
    if not section.intrinsic_coefficient:
        return None
    source, which = Path(section.reward_dir or workdir), section.reward_checkpoint
    try:
        reward, newest = load_reward(source, which), newest_checkpoint(source)
    except UserError as error:
        raise UserError(f"{error} (--config.policy.reward_dir, .reward_checkpoint)") from None
    if which == "last" and reward.facts["epoch"] != newest:
        raise UserError(
            f"the last checkpoint of the reward in {str(source)!r}, {newest}, is damaged; one before it can be used: "
            f"--config.policy.reward_checkpoint={reward.facts['epoch']}"
        )
    return RewardSource(reward, make_mix(config, reward), section.reference_alignment)


def newest_checkpoint(path: Path) -> int:
    """The number of a reward's last checkpoint, even if that is damaged."""
    return max(int(folder.name) for folder in find_checkpoints(path).iterdir() if folder.name.isdecimal())


def make_mix(config: ConfigDict, reward: Reward | None) -> Mix:
    """Reads from the config how the game's reward and the learnt reward are combined."""
    section = config.policy
    known = reward is not None and section.threshold_quantile >= 0
    threshold = reward.statistics.quantile(section.threshold_quantile) if reward and known else float("-inf")
    return Mix(
        extrinsic=section.extrinsic_coefficient,
        intrinsic=section.intrinsic_coefficient if reward else 0.0,
        scale=section.reward_scale,
        clip=section.reward_clip,
        threshold=threshold,
        count_exponent=section.count_exponent,
    )


def reward_checksum(reward: Reward) -> str:
    """A SHA-256 of parameters and statistics, to check that a policy is trained with the same reward throughout."""
    found = hashlib.sha256(repr(reward.statistics).encode())
    for leaf in jax.tree.leaves(reward.params):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()
