"""The reward sources of a training run or a checkpoint as one object: their rewards, state and figures.

A checkpoint has the arrays of each source in `sources/NAME`, and a fact `sources` with its `class`, `coefficient` and
`facts` by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.devices.parameters import leaves_by_path
from motif_jax.rewards.choice import CODE, FLAG, LEARNT, PATHS, READING, SourceChoice, find_class, user_code
from motif_jax.rewards.code.source import CodeReward
from motif_jax.rewards.options import chosen_from, find_plan
from motif_jax.rewards.reading import Reading
from motif_jax.rewards.section import NamedSources
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError


class Weighted(NamedTuple):
    """A source with its name and coefficient."""

    name: str  # for metrics, results and checkpoints
    path: str  # module:Class
    coefficient: float
    source: RewardSource


class Saved(NamedTuple):
    """A source in a checkpoint."""

    path: str
    coefficient: float
    facts: Facts
    arrays: Any


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
        return self.get(LEARNT)

    @property
    def observations(self) -> set[str]:
        """Names of the observations that rollouts must record for the sources."""
        return {name for found in self._ask(lambda source: source.observations).values() for name in found}

    def _ask(self, question: Callable[[Any], Any]) -> dict[str, Any]:
        """The result of `question` for each source, by name; errors in a user's source name the source."""
        found = {}
        for one in self:
            with user_code(one.path):
                found[one.name] = question(one.source)
        return found

    # ---- rewards

    def moments(self, rollouts: Arrays) -> dict[str, Arrays]:
        """The moments of each source, by name; `shape` makes rewards of them. [T, B, ...] each"""
        return self._ask(lambda source: source.moments(rollouts))

    def shape(self, moments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The rewards of each source, before coefficients, by name. [T, B] each"""
        found = {}
        for one in self:
            with user_code(one.path):
                found[one.name] = one.source.shape(moments[one.name])
        return found

    def terms(self, rollouts: Arrays) -> dict[str, Arrays]:
        """The rewards of each program's terms, by source and text. [T, B] each"""
        return {one.name: one.source.terms(rollouts) for one in self if isinstance(one.source, CodeReward)}

    def total(self, moments: Mapping[str, Any]) -> Any:
        """The sum of all rewards times coefficients, on the device; None without sources. [T, B]"""
        shaped = self.shape(moments)
        parts = [one.coefficient * shaped[one.name] for one in self]
        return functools.reduce(lambda one, other: one + other, parts) if parts else None

    def check(self, rewards: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        """Raises UserError, with the source's name, if rewards have another shape or are not finite."""
        for name, array in rewards.items():
            if (found := np.shape(array)) != shape:
                raise UserError(
                    f"the reward source {name!r} must return rewards of shape {shape}, not {found} ({FLAG})"
                )
            if not np.isfinite(array).all():
                raise UserError(f"the reward source {name!r} returned a reward that is not finite ({FLAG})")

    # ---- the learner's thread

    def advance(self, batch: Any, hosts: Any) -> None:
        """Lets each source learn from a batch; see `RewardSource.advance`."""
        self._ask(lambda source: source.advance(batch, hosts))

    def figures(self) -> dict[str, float]:
        """Figures of all sources, for a row of metrics.jsonl."""
        found = self._ask(lambda source: source.figures().items()).values()
        return {f"reward/{name}": value for figures in found for name, value in figures}

    def failures(self) -> list[str]:
        """One sentence per source whose rewards cannot be used."""
        found = []
        for one in self:
            with user_code(one.path):
                found += [f"the reward source {one.name!r}: {why}" for why in [one.source.failure()] if why]
        return found

    def about(self) -> dict[str, Facts]:
        """Facts for evaluation and report, by source; the learnt reward has its own keys there."""
        found = self._ask(lambda source: source.about())
        return {name: facts for name, facts in found.items() if name != LEARNT}

    def close(self) -> None:
        self._ask(lambda source: source.close())

    # ---- checkpoints

    def arrays(self) -> dict[str, Any]:
        """The arrays of the sources, by name; sources without arrays are left out."""
        found = self._ask(lambda source: source.arrays())
        return {name: arrays for name, arrays in found.items() if leaves_by_path(arrays)}

    def facts(self) -> dict[str, Facts]:
        """The fact `sources` for a checkpoint, which `saved_sources` reads."""
        found = self._ask(lambda source: source.facts())
        return {one.name: {"class": one.path, "coefficient": one.coefficient, "facts": found[one.name]} for one in self}

    def restore(self, saved: Mapping[str, Saved]) -> None:
        """Restores the sources from a checkpoint; raises UserError if it has other sources."""
        learnt = [names for names in (set(saved), {one.name for one in self}) if LEARNT in names]
        if len(learnt) == 1:
            raise UserError(OTHER_REWARD)
        for name in sorted(saved.keys() ^ {one.name for one in self}):
            here = "did not use" if name not in saved else "used"
            raise UserError(
                f"this policy's training {here} the reward source {name!r}: choose another --workdir ({FLAG})"
            )
        for one in self:
            with user_code(one.path):
                one.source.restore(saved[one.name].arrays, saved[one.name].facts)


OTHER_REWARD = (
    "the learnt reward has changed since this policy's training began: choose another --workdir, or the same reward "
    "(--config.policy.reward_dir)"
)


def chosen(config: NamedSources) -> list[SourceChoice]:
    """The sources that the config names; with options, those that they mix."""
    return chosen_from(config.policy, find_plan(config))


def trusted_classes(config: NamedSources, network: str) -> list[str]:
    """The classes (`module:Class`) that the config names, which checkpoints may therefore import."""
    return [network, *(choice.path for choice in chosen(config))]


def make_sources(setting: Setting) -> RewardSources:
    """Makes the sources that the config names."""
    found = []
    for choice in chosen(setting.config):
        with user_code(choice.path):
            if choice.path == READING:
                source: RewardSource = Reading.named(choice.name, setting)
            elif choice.path == CODE:
                source = CodeReward.named(choice, setting)
            else:
                source = find_class(choice.path).make(setting)
            found.append(Weighted(choice.name, choice.path, choice.coefficient, source))
    return RewardSources(found)


def saved_sources(facts: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Saved]:
    """The sources in a checkpoint, by name, from its facts and its arrays (`whole`)."""
    arrays = whole.get("sources", {})
    return {
        name: Saved(one["class"], one["coefficient"], one["facts"], arrays.get(name, {}))
        for name, one in facts["sources"].items()
    }


def sources_from(facts: Mapping[str, Any], whole: Mapping[str, Any], trusted: Iterable[str] = ()) -> RewardSources:
    """Rebuilds the sources of a policy from its checkpoint alone.

    Checkpoints are not trusted: only built-in classes, and those that the user has `trusted`, are imported; other
    sources are left out.
    """
    known = PATHS | set(trusted)
    return RewardSources(
        Weighted(name, saved.path, saved.coefficient, source_from(saved))
        for name, saved in saved_sources(facts, whole).items()
        if saved.path in known
    )


def source_from(saved: Saved) -> RewardSource:
    """Rebuilds one source from a checkpoint."""
    with user_code(saved.path):
        return find_class(saved.path).rebuild(saved.arrays, saved.facts)
