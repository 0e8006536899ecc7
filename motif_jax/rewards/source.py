"""The protocol of reward sources, which reward the agent beside the game.

The agent has a list of sources (registry.py parses it). Two threads use a source:

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

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.envs.own_code import failure, guarded, load_class
from motif_jax.envs.world import waited
from motif_jax.rewards.registry import FLAG, SourceChoice, chosen, is_built_in, known_class
from motif_jax.rewards.section import NamedSources, RewardsSection, SourcesConfig
from motif_jax.structs import ArraySpec, UserError
from motif_jax.system.errors import find_refusal

Arrays = dict[str, np.ndarray]
Facts = dict[str, Any]  # JSON values


class Setting(NamedTuple):
    """The arguments of `RewardSource.make`."""

    config: SourcesConfig
    workdir: Path
    specs: Mapping[str, ArraySpec]  # all observations that the world can record
    reads: tuple[str, ...] = ()  # names of the policy's observations
    mesh: Any = None  # the learner's devices; None without training
    choice: SourceChoice = SourceChoice("", "")  # the source's entry in the list


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
          rollouts: read-only arrays of T steps of B games: `observations` and those of the policy ([T + 1, B, ...],
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
        reward = np.asarray(self.rewards(rollouts))
        return {"reward": np.asarray(reward, np.float32) if is_real(reward) else reward}

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


# ---- all sources


def user_code(path: str, doing: str = "") -> contextlib.AbstractContextManager[None]:
    """A context for calls of a source: errors in a user's source become UserCodeError, others pass unchanged."""

    def explain(error: BaseException) -> UserError | None:
        own = not is_built_in(path) and not find_refusal(error)
        return failure(f"{doing}the reward source {path!r}", FLAG, error) if own else None

    return guarded(explain)


def is_real(array: np.ndarray) -> bool:
    """Whether these are real numbers, also of JAX's own types, such as bfloat16."""
    return np.can_cast(array.dtype, np.longdouble)


def locked(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Views that cannot be written: a source that worked in place would change what others and the learner read."""
    views = {name: array.view() if isinstance(array, np.ndarray) else array for name, array in arrays.items()}
    for view in views.values():
        if isinstance(view, np.ndarray):
            view.setflags(write=False)
    return views


class Weighted(NamedTuple):
    """A source with its name and coefficient."""

    name: str  # for metrics, results and checkpoints
    path: str  # module:Class
    coefficient: float
    source: RewardSource


class RewardSources(tuple[Weighted, ...]):
    """All sources of a training run or a checkpoint: their rewards, state and metrics.

    A checkpoint has the arrays of each source in `sources/NAME`, and a fact `sources` with its `class`, `coefficient`
    and `facts` by name.
    """

    def get(self, name: str) -> Any:
        """The source with this name; None if it is not in the list."""
        return next((one.source for one in self if one.name == name), None)

    @property
    def learnt(self) -> Any:
        """The learnt reward (`learnt_source.LearntSource`); None if it is not in the list."""
        return next((one.source for one in self if one.source.is_learnt), None)

    @property
    def observations(self) -> set[str]:
        """Names of the observations that rollouts must record for the sources."""
        return {name for names in self._ask(lambda one: one.source.observations).values() for name in names}

    def _ask(self, question: Callable[[Weighted], Any]) -> dict[str, Any]:
        """The result of `question` for each source, by name; errors in a user's source name the source."""
        answers = {}
        for one in self:
            with user_code(one.path):
                answers[one.name] = question(one)
        return answers

    # ---- rewards

    def moments(self, rollouts: Arrays) -> dict[str, Arrays]:
        """The moments of each source, by name; `shape` makes rewards of them. [T, B, ...] each"""
        return self._ask(lambda one: one.source.moments(locked(rollouts)))

    def shape(self, moments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The rewards of each source, before coefficients, by name. [T, B] each"""
        return self._ask(lambda one: one.source.shape(locked(moments[one.name])))

    def terms(self, rollouts: Arrays) -> dict[str, Arrays]:
        """The terms of each source's rewards, by source and text. [T, B] each"""
        return self._ask(lambda one: one.source.reward_terms(locked(rollouts)))

    def total(self, moments: Mapping[str, Any]) -> Any:
        """The sum of all rewards times coefficients, on the device; None without sources. [T, B]"""
        shaped = self.shape(moments)
        parts = [one.coefficient * shaped[one.name] for one in self]
        return sum(parts[1:], parts[0]) if parts else None

    def check(self, rewards: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        """Raises UserError, with the source's name, if rewards have another shape or are not finite numbers."""
        for name, given in rewards.items():
            array = np.asarray(given)
            if array.shape != shape or not is_real(array) or not np.isfinite(array).all():
                wanted = f"finite numbers of shape {shape}, not an array of shape {array.shape} and type {array.dtype}"
                raise UserError(f"the reward source {name!r} must return {wanted} ({FLAG})")

    # ---- the learner's thread

    def advance(self, batch: Any, hosts: Any) -> None:
        """Lets each source learn from a batch; see `RewardSource.advance`."""
        self._ask(lambda one: one.source.advance(batch, hosts))

    def figures(self) -> dict[str, float]:
        """Figures of all sources, for a row of metrics.jsonl."""
        by_source = self._ask(lambda one: one.source.figures().items()).values()
        return {f"reward/{name}": value for figures in by_source for name, value in figures}

    def failures(self) -> list[str]:
        """One sentence per source whose rewards cannot be used."""
        reasons = self._ask(lambda one: one.source.failure())
        return [f"the reward source {name!r}: {reason}" for name, reason in reasons.items() if reason]

    def about(self) -> dict[str, Facts]:
        """Facts for evaluation and report, by source; the learnt reward has its own keys there."""
        about = self._ask(lambda one: one.source.about())
        return {one.name: about[one.name] for one in self if not one.source.is_learnt}

    def close(self) -> None:
        self._ask(lambda one: one.source.close())

    # ---- checkpoints

    def arrays(self) -> dict[str, Any]:
        """The arrays of the sources, by name; sources without arrays are left out."""
        by_source = self._ask(lambda one: one.source.arrays())
        import jax  # loaded by then; not before the config is checked

        return {name: arrays for name, arrays in by_source.items() if jax.tree.leaves(arrays)}

    def facts(self) -> dict[str, Facts]:
        """The fact `sources` for a checkpoint."""
        return self._ask(lambda one: {"class": one.path, "coefficient": one.coefficient, "facts": one.source.facts()})

    def check_state(self) -> None:
        """Raises UserError if a source holds what a checkpoint cannot: training would end at its first one."""
        from motif_jax.devices.parameters import leaves_by_path

        for one in self:
            with user_code(one.path, "saving "):
                json.dumps(one.source.facts())
                for path, leaf in leaves_by_path(one.source.arrays()).items():
                    if not np.can_cast(dtype := np.asarray(leaf).dtype, np.complex128):
                        raise TypeError(f"{'.'.join(path)!r} of arrays() is not an array of numbers, but of {dtype}")

    def restore(self, saved: Mapping[str, Facts], arrays: Mapping[str, Any]) -> None:
        """Restores the sources from `facts` and `arrays` of a checkpoint; raises UserError if it has other sources."""
        for name in sorted(saved.keys() ^ {one.name for one in self}):
            source = f"{'used' if name in saved else 'did not use'} the reward source {name!r}"
            raise UserError(f"this policy's training {source}: choose another --workdir ({FLAG})")
        self._ask(lambda one: one.source.restore(arrays.get(one.name, {}), saved[one.name]["facts"]))


def trusted_classes(config: NamedSources, network: str) -> list[str]:
    """The classes (`module:Class`) that the config names, which checkpoints may therefore import."""
    return [network, *(choice.path for choice in chosen(config))]


def make_sources(setting: Setting) -> RewardSources:
    """Makes the sources that the config names."""
    sources = []
    for choice in chosen(setting.config):
        with user_code(choice.path):
            source: RewardSource = load_class(choice.path, "reward source", FLAG).make(setting._replace(choice=choice))
            sources.append(Weighted(choice.name, choice.path, choice.coefficient, source))
    return RewardSources(sources)


def sources_from(facts: Mapping[str, Any], checkpoint: Mapping[str, Any], trusted: Iterable[str] = ()) -> RewardSources:
    """The sources of a checkpoint, which is not trusted: sources of unknown classes, not in `trusted`, are left out."""
    trusted, arrays, sources = set(trusted), checkpoint.get("sources", {}), []
    for name, saved in facts["sources"].items():
        own = saved["class"] if saved["class"] in trusted else ""
        if path := known_class(name, saved["class"]) or own:
            with user_code(path):
                source: RewardSource = load_class(path, "reward source", FLAG).rebuild(
                    arrays.get(name, {}), saved["facts"]
                )
            sources.append(Weighted(name, path, saved["coefficient"], source))
    return RewardSources(sources)
