"""The protocol of reward sources: what rewards the agent beside the game.

A list of sources rewards the agent (choice.py parses it, sources.py holds it). Two threads use a source:

    hand-off thread     rewards of the steps of new rollouts, from ONE immutable snapshot
    learner's thread    `advance` after each update of the policy: the only writer; it swaps in a new snapshot

So no locks are needed: `rewards` reads `self._snapshot` once. A snapshot holds copies, because compiled updates are
given the memory of their state. A source of your own is one class:

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
from ml_collections import ConfigDict

from motif_jax.structs import ArraySpec

Arrays = dict[str, np.ndarray]
Facts = dict[str, Any]  # as JSON holds them


class Setting(NamedTuple):
    """What a source is made from when training begins."""

    config: ConfigDict
    workdir: Path
    specs: Mapping[str, ArraySpec]  # all observations that the world can record
    reads: tuple[str, ...] = ()  # those that the policy reads
    mesh: Any = None  # the learner's devices; None where nothing is trained


class RewardSource:
    """A source of rewards; a subclass overrides `rewards`, and what else it needs. These defaults hold no state."""

    observations: tuple[str, ...] = ()  # names of those that rollouts must record, beside what the policy reads
    learns = False  # whether `advance` changes what `arrays` returns

    @classmethod
    def make(cls, setting: Setting) -> RewardSource:
        """A new source, for the start of training; `restore` follows where training is resumed."""
        return cls()

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> RewardSource:
        """The source as a checkpoint holds it, for evaluation; it need not be able to `advance`."""
        return cls()

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        """The reward of each step, before the coefficient is applied. Called in the hand-off thread.

        Args:
          rollouts: arrays of T steps of B games, by name: `observations` and what the policy reads ([T + 1, B, ...],
            before each step and after the last), observations named `event_*` (what each step led to, [T, B, ...]),
            `action`, `reward`, `terminated` and `truncated` ([T, B]), `first` (an episode begins here, [T + 1, B]),
            `game` (the number of each game, which stays the same from call to call, [1, B]).

        Returns:
          [T, B], finite.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `rewards`")

    def moments(self, rollouts: Arrays) -> Arrays:
        """What `shape` makes the rewards of, [T, B, ...] each; it is placed on the learner's devices."""
        return {"reward": np.asarray(self.rewards(rollouts), np.float32)}

    def shape(self, moments: Mapping[str, Any]) -> Any:
        """The reward of each step from its `moments`: plain arithmetic, on NumPy and on JAX arrays. [T, B]"""
        return moments["reward"]

    def advance(self, batch: Any, hosts: Any) -> None:
        """Learns from a batch. Called in the learner's thread, after the update of the policy that used the batch.

        Args:
          batch: `actors.handoff.Batch`; `batch.arrays.rollouts` lies on the learner's devices.
          hosts: which host this is, and of how many (`me`, `count`). All hosts call `advance` at the same point, so
            what is compiled for all devices may be run here, and nowhere else in a source.
        """

    def arrays(self) -> Any:
        """A tree of arrays for the checkpoint; empty if there is nothing to keep."""
        return {}

    def facts(self) -> Facts:
        """What else `rebuild` and `restore` need, as JSON holds it."""
        return {}

    def restore(self, arrays: Any, facts: Facts) -> None:
        """Goes on from `arrays` and `facts` of a checkpoint; raises a UserError with the flag if that cannot be."""

    def figures(self) -> dict[str, float]:
        """Figures for a row of metrics.jsonl, as `reward/NAME`; the names begin with that of the source."""
        return {}

    def failure(self) -> str:
        """At the end of training: why its rewards were worth nothing, as a sentence; "" if its rewards can be used."""
        return ""

    def about(self) -> Facts:
        """What evaluation and report say of the source; equal dictionaries mean equal rewards."""
        return self.facts()

    def close(self) -> None:
        """Frees what the source holds."""
