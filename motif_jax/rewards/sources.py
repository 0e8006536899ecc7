"""The reward sources of a training run or of a checkpoint, as one thing: their rewards, their state, and their figures.

In a checkpoint, `sources/NAME` has the arrays of each, and the fact `sources` a dictionary by name: the `class`, the
`coefficient`, and the source's own `facts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.devices.parameters import leaves_by_path
from motif_jax.rewards.choice import FLAG, LEARNT, PATHS, Choice, find_class, parse_sources, user_code
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError


class Weighted(NamedTuple):
    """A source with its place in the list."""

    name: str  # in metrics, results and checkpoints
    path: str  # module:Class
    coefficient: float
    source: RewardSource


class Saved(NamedTuple):
    """A source as a checkpoint holds it."""

    path: str
    coefficient: float
    facts: Facts
    arrays: Any


class RewardSources:
    """Some sources, each with its coefficient; iterating gives `Weighted`."""

    def __init__(self, sources: Iterable[Weighted] = ()):
        self._all = tuple(sources)

    def __iter__(self) -> Iterator[Weighted]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> Any:
        """The source of a name; None if it is not in the list."""
        return next((one.source for one in self if one.name == name), None)

    @property
    def learnt(self) -> Any:
        """The learnt reward (`learnt_source.LearntSource`); None if it is not in the list."""
        return self.get(LEARNT)

    @property
    def observations(self) -> set[str]:
        """Names of the observations that rollouts must record for all of them."""
        return {name for found in self._ask(lambda source: source.observations).values() for name in found}

    def _ask(self, question: Callable[[Any], Any]) -> dict[str, Any]:
        """What each source answers, by its name; what goes wrong in a source of the user's own is named as such."""
        found = {}
        for one in self:
            with user_code(one.path):
                found[one.name] = question(one.source)
        return found

    # ---- rewards

    def moments(self, rollouts: Arrays) -> dict[str, Arrays]:
        """What each source's rewards are made of, by its name. [T, B, ...] each"""
        return self._ask(lambda source: source.moments(rollouts))

    def shape(self, moments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Each source's rewards, before coefficients, from `moments`. [T, B] each"""
        found = {}
        for one in self:
            with user_code(one.path):
                found[one.name] = one.source.shape(moments[one.name])
        return found

    def total(self, moments: Mapping[str, Any]) -> Any:
        """The sum of all sources' rewards with their coefficients, on the device; None without any source. [T, B]"""
        shaped = self.shape(moments)
        parts = [one.coefficient * shaped[one.name] for one in self]
        return functools.reduce(lambda one, other: one + other, parts) if parts else None

    def check(self, rewards: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        """Raises UserError, with the source's name, if rewards are not of this shape and finite."""
        for name, array in rewards.items():
            if (found := np.shape(array)) != shape:
                raise UserError(
                    f"the reward source {name!r} gives rewards of shape {found}, where {shape} is due ({FLAG})"
                )
            if not np.isfinite(array).all():
                raise UserError(f"the reward source {name!r} gives a reward that is not finite ({FLAG})")

    # ---- the learner's thread

    def advance(self, batch: Any, hosts: Any) -> None:
        """Lets each source learn from a batch; see `RewardSource.advance`."""
        self._ask(lambda source: source.advance(batch, hosts))

    def figures(self) -> dict[str, float]:
        """Figures of all sources, for a row of metrics.jsonl."""
        found = self._ask(lambda source: source.figures().items()).values()
        return {f"reward/{name}": value for figures in found for name, value in figures}

    def failures(self) -> list[str]:
        """Why rewards of sources were worth nothing, a sentence each."""
        found = []
        for one in self:
            with user_code(one.path):
                found += [f"the reward source {one.name!r}: {why}" for why in [one.source.failure()] if why]
        return found

    def about(self) -> dict[str, Facts]:
        """What evaluation and report say of each source but the learnt reward, which has keys of its own there."""
        found = self._ask(lambda source: source.about())
        return {name: facts for name, facts in found.items() if name != LEARNT}

    def close(self) -> None:
        """Closes all of them."""
        self._ask(lambda source: source.close())

    # ---- checkpoints

    def arrays(self) -> dict[str, Any]:
        """Arrays of each source that has any, by its name."""
        found = self._ask(lambda source: source.arrays())
        return {name: arrays for name, arrays in found.items() if leaves_by_path(arrays)}

    def learning(self) -> dict[str, Any]:
        """The same of those sources that learn during training."""
        found = self._ask(lambda source: source.arrays() if source.learns else None)
        return {name: arrays for name, arrays in found.items() if arrays is not None}

    def facts(self) -> dict[str, Facts]:
        """What `saved_sources` reads, by name."""
        found = self._ask(lambda source: source.facts())
        return {one.name: {"class": one.path, "coefficient": one.coefficient, "facts": found[one.name]} for one in self}

    def restore(self, saved: Mapping[str, Saved]) -> None:
        """Goes on from a checkpoint, or raises UserError if that has other sources."""
        learnt = [names for names in (set(saved), {one.name for one in self}) if LEARNT in names]
        if len(learnt) == 1:
            raise UserError(OTHER_REWARD)
        for name in sorted(saved.keys() ^ {one.name for one in self}):
            here = "had no" if name not in saved else "had the"
            raise UserError(f"this policy's training {here} reward source {name!r}: choose another --workdir ({FLAG})")
        for one in self:
            with user_code(one.path):
                one.source.restore(saved[one.name].arrays, saved[one.name].facts)

    def take_over(self, learning: Mapping[str, Any]) -> None:
        """Goes on from what `learning` returned on another host, as nested dictionaries."""
        for one in self:
            if one.name in learning:
                with user_code(one.path):
                    one.source.restore(learning[one.name], one.source.facts())


OTHER_REWARD = (
    "the learnt reward has changed since this policy's training began: choose another --workdir, or the same reward "
    "(--config.policy.reward_dir)"
)


def chosen(config: ConfigDict) -> list[Choice]:
    """The sources that the config names."""
    return parse_sources(config.policy.sources, config.policy.intrinsic_coefficient)


def make_sources(setting: Setting) -> RewardSources:
    """Makes the sources that the config names."""
    found = []
    for choice in chosen(setting.config):
        with user_code(choice.path):
            found.append(Weighted(*choice, find_class(choice.path).make(setting)))
    return RewardSources(found)


def saved_sources(facts: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Saved]:
    """The sources in a checkpoint of a policy, by name: its facts, and all of its arrays."""
    arrays = whole.get("sources", {})
    return {
        name: Saved(one["class"], one["coefficient"], one["facts"], arrays.get(name, {}))
        for name, one in facts["sources"].items()
    }


def sources_from(facts: Mapping[str, Any], whole: Mapping[str, Any], trusted: Iterable[str] = ()) -> RewardSources:
    """Rebuilds the sources of a policy from its checkpoint alone.

    A checkpoint may come from anywhere, so classes that it names are imported only if the program has them, or if they
    are among those that the user `trusted`; others are left out.
    """
    known = PATHS | set(trusted)
    return RewardSources(
        Weighted(name, saved.path, saved.coefficient, source_from(saved))
        for name, saved in saved_sources(facts, whole).items()
        if saved.path in known
    )


def source_from(saved: Saved) -> RewardSource:
    """One source from a checkpoint."""
    with user_code(saved.path):
        return find_class(saved.path).rebuild(saved.arrays, saved.facts)
