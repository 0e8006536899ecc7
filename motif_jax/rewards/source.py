"""The protocol of reward sources, which reward the agent beside the game.

The agent has a list of sources (registry.py parses it, sources.py holds it). Two threads use a source:

    hand-off thread     rewards of the steps of new rollouts, from ONE immutable snapshot
    learner's thread    `advance` after each update of the policy: the only writer; it swaps in a new snapshot

So no locks are needed: `rewards` reads `self._snapshot` once. A snapshot holds copies, because compiled updates donate
the memory of their state. A source of your own is one class:

    class Deeper(RewardSource):
        observations = ("event_blstats",)

        def rewards(self, rollouts):
            return rollouts["event_blstats"][..., 12] > 1

    --config.policy.sources=learnt,my_package.my_module:Deeper:0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.rewards.section import SourcesConfig
from motif_jax.structs import ArraySpec

Arrays = dict[str, np.ndarray]
Facts = dict[str, Any]  # JSON values


class Setting(NamedTuple):
    """The arguments of `RewardSource.make`."""

    config: SourcesConfig
    workdir: Path
    specs: Mapping[str, ArraySpec]  # all observations that the world can record
    reads: tuple[str, ...] = ()  # names of the policy's observations
    mesh: Any = None  # the learner's devices; None without training
    choice: Any = None  # the source's entry in the list, a `registry.SourceChoice`


class RewardSource:
    """A source of rewards. A subclass overrides `rewards`; the other defaults are for sources without state."""

    observations: tuple[str, ...] = ()  # names of observations that rollouts must record, beside the policy's
    is_learnt = False  # the learnt reward, which checkpoints, metrics and summaries keep apart from the others
    caption_value = ""  # the key of the value of each step's caption in `moments`, for replays

    @classmethod
    def make(cls, setting: Setting) -> RewardSource:
        """A new source, at the start of training; if training is resumed, `restore` follows."""
        return cls()

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> RewardSource:
        """The source of a checkpoint, for evaluation; it need not support `advance`."""
        return cls()

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        """The reward of each step, before the coefficient is applied. Called in the hand-off thread.

        Args:
          rollouts: arrays of T steps of B games, by name: `observations` and those of the policy ([T + 1, B, ...],
            before each step and after the last), observations named `event_*` (the result of each step, [T, B, ...]),
            `action`, `reward`, `terminated` and `truncated` ([T, B]), `first` (an episode begins here, [T + 1, B]),
            `game` (the number of each game, constant over calls, [1, B]).

        Returns:
          [T, B], finite.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `rewards`")

    def reward_terms(self, rollouts: Arrays) -> Arrays:
        """The parts of a reward that is a sum, by their texts; {} for others. [T, B] each"""
        return {}

    def moments(self, rollouts: Arrays) -> Arrays:
        """Arrays from which `shape` computes the rewards, [T, B, ...] each; placed on the learner's devices."""
        return {"reward": np.asarray(self.rewards(rollouts), np.float32)}

    def shape(self, moments: Mapping[str, Any]) -> Any:
        """The reward of each step from its `moments`: arithmetic on NumPy and JAX arrays. [T, B]"""
        return moments["reward"]

    def advance(self, batch: Any, hosts: Any) -> None:
        """Learns from a batch. Called in the learner's thread, after the update of the policy that used the batch.

        Args:
          batch: `actors.acting.RolloutBatch`; `batch.arrays.rollouts` is on the learner's devices, and `batch.steps`
            counts the steps of all hosts.
          hosts: the number of this host and of all hosts (`me`, `count`). All hosts call `advance` at the same point,
            so only here a source may run programs that are compiled for all devices.
        """

    def arrays(self) -> Any:
        """A tree of arrays for the checkpoint; empty for a source without state."""
        return {}

    def facts(self) -> Facts:
        """JSON values that `rebuild` and `restore` also need."""
        return {}

    def restore(self, arrays: Any, facts: Facts) -> None:
        """Continues from `arrays` and `facts` of a checkpoint; raises UserError, with the flag, if they do not fit."""

    def figures(self) -> dict[str, float]:
        """Figures for a row of metrics.jsonl, as `reward/NAME`; names begin with the name of the source."""
        return {}

    def failure(self) -> str:
        """At the end of training: the reason why the rewards cannot be used, as a sentence; "" if they can."""
        return ""

    def about(self) -> Facts:
        """Facts for evaluation and report; equal dictionaries mean equal rewards."""
        return self.facts()

    def close(self) -> None:
        """Releases resources."""
