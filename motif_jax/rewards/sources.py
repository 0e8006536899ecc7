"""The reward sources of a training run or a checkpoint as one object: their rewards, state and metrics.

A checkpoint has the arrays of each source in `sources/NAME`, and a fact `sources` with its `class`, `coefficient` and
`facts` by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.devices.parameters import leaves_by_path
from motif_jax.rewards.registry import FLAG, PATHS, chosen, find_class, user_code
from motif_jax.rewards.section import NamedSources
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError


class Weighted(NamedTuple):
    """A source with its name and coefficient."""

    name: str  # for metrics, results and checkpoints
    path: str  # module:Class
    coefficient: float
    source: RewardSource


class RewardSources:
    """A list of `Weighted` sources."""

    def __init__(self, sources: Iterable[Weighted] = ()):
        self._all = tuple(sources)

    def __iter__(self) -> Iterator[Weighted]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

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
        return self._ask(lambda one: one.source.moments(rollouts))

    def shape(self, moments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The rewards of each source, before coefficients, by name. [T, B] each"""
        return self._ask(lambda one: one.source.shape(moments[one.name]))

    def terms(self, rollouts: Arrays) -> dict[str, Arrays]:
        """The terms of each source's rewards, by source and text. [T, B] each"""
        return self._ask(lambda one: one.source.reward_terms(rollouts))

    def total(self, moments: Mapping[str, Any]) -> Any:
        """The sum of all rewards times coefficients, on the device; None without sources. [T, B]"""
        shaped = self.shape(moments)
        parts = [one.coefficient * shaped[one.name] for one in self]
        return sum(parts[1:], parts[0]) if parts else None

    def check(self, rewards: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        """Raises UserError, with the source's name, if rewards have another shape or are not finite."""
        for name, array in rewards.items():
            if np.shape(array) != shape or not np.isfinite(array).all():
                wanted = f"finite rewards of shape {shape}; they have shape {np.shape(array)}"
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
        return {name: arrays for name, arrays in by_source.items() if leaves_by_path(arrays)}

    def facts(self) -> dict[str, Facts]:
        """The fact `sources` for a checkpoint."""
        return self._ask(lambda one: {"class": one.path, "coefficient": one.coefficient, "facts": one.source.facts()})

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
            source = find_class(choice.path).make(setting._replace(choice=choice))
            sources.append(Weighted(choice.name, choice.path, choice.coefficient, source))
    return RewardSources(sources)


def sources_from(facts: Mapping[str, Any], checkpoint: Mapping[str, Any], trusted: Iterable[str] = ()) -> RewardSources:
    """The sources of a checkpoint, which is not trusted: sources of unknown classes, not in `trusted`, are left out."""
    allowed, arrays, sources = PATHS | set(trusted), checkpoint.get("sources", {}), []
    for name, saved in facts["sources"].items():
        if (path := saved["class"]) in allowed:
            with user_code(path):
                source = find_class(path).rebuild(arrays.get(name, {}), saved["facts"])
            sources.append(Weighted(name, path, saved["coefficient"], source))
    return RewardSources(sources)
