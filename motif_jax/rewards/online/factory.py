"""Makes the parts of an online reward from the config: judge, facts, kind, and the opinion before labels exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.asking import AskingCounts
from motif_jax.annotation.backends import CaptionBackend, find_backend, open_judge, opened
from motif_jax.annotation.own_process import TOGETHER, OwnProcess
from motif_jax.annotation.stream import Stream
from motif_jax.envs.texts import texts_of
from motif_jax.rewards.learnt import Reward, load_reward
from motif_jax.rewards.online.captioned import captioned_facts
from motif_jax.rewards.online.kinds import Anchored, Classification, OnlineKind, Ranking, Retrieval, TrainingSettings
from motif_jax.rewards.online.online_section import SECTION, asks_pairs, is_anchored, judge_section
from motif_jax.rewards.online.store import Opinion
from motif_jax.rewards.running_stats import RunningStats
from motif_jax.rewards.section import SourcesConfig
from motif_jax.rewards.source import Facts
from motif_jax.structs import UserError

DECIDING = ("kind", "goals", "threshold", "floor", "normalise", "capacity")  # values that rewards depend on


def make_facts(config: SourcesConfig, judge: Facts) -> Facts:
    """Facts that rewards depend on, beside the arrays; `judge`: the result of `Judges.facts`."""
    section = vars(config.policy.online)
    settings = {name: config.seed if name == "seed" else section[name] for name in TrainingSettings._fields}
    facts = {name: section[name] for name in DECIDING} | {"judge": judge, "teaching": settings}
    if is_anchored(section):  # facts without an anchor are as before there were anchors
        facts["anchor"] = section["anchor"]
    return facts | captioned_facts(config.policy)


def make_kind(facts: Facts) -> OnlineKind:
    """A new, untrained kind, as the facts describe it."""
    return MAKERS[facts["kind"]](facts, TrainingSettings(**facts["teaching"]))


def _make_ranking(facts: Facts, settings: TrainingSettings) -> OnlineKind:
    return Anchored(settings) if is_anchored(facts) else Ranking(settings, facts["floor"], facts["normalise"])


MAKERS: dict[str, Callable[[Facts, TrainingSettings], OnlineKind]] = {
    "retrieval": lambda facts, _: Retrieval(facts["threshold"]),
    "classification": lambda facts, settings: Classification(settings, facts["threshold"]),
    "ranking": _make_ranking,
}


class Judges:
    """Opens a judge for each goal."""

    def __init__(self, config: SourcesConfig):
        self._config, self._texts = config, texts_of(config.env, config.annotate.lexicon)
        self._one = not asks_pairs(config.policy.online.kind)

    @property
    def name(self) -> str:
        section = self._config.annotate
        return str(section.model or section.backend)

    def facts(self) -> dict[str, Any]:
        """Facts that labels depend on, beside the goal."""
        facts = self._backend("defaultgoal").flat_metadata()
        facts.pop("goal", None)  # goals change during training
        if str(facts.get("model", "")).startswith(("/", ".", "~")):
            facts["model"] = Path(facts["model"]).name  # wherever the directory lies
        return facts

    def open(self, goal: str, taken: int, at_once: bool) -> Stream:
        """Opens a judge for a goal.

        `taken`: number of earlier questions, which count towards the budget. `at_once`: raise UserError if the judge
        cannot be reached now; otherwise retry in the background.
        """
        backend, cache_dir = self._backend(goal), self._config.annotate.cache_dir
        open_backend = OwnProcess if backend.uses_jax else opened
        return Stream(
            lambda counts: open_judge(backend, cache_dir, counts, open_backend, TOGETHER),
            AskingCounts("train_policy"),
            immediate=self._config.policy.synchronous,
            at_once=at_once,
            taken=taken,
        )

    def _backend(self, goal: str) -> CaptionBackend:
        section = judge_section(self._config.annotate, goal, self._config.policy.online.patience_s)
        backend = find_backend(section)(section, self._texts, self._config.seed, self._one, verdicts=True)
        assert isinstance(backend, CaptionBackend), "check_online refuses the others"
        return backend


WEIGHT = 1000.0  # the statistics of the learnt reward count as this number of steps


def starting_opinion(config: SourcesConfig, kind: OnlineKind) -> Opinion | None:
    """Gives ranking the parameters of `init_from`; for other kinds, returns a function from messages to 0 or 1."""
    section = config.policy.online
    if not section.init_from:
        return None
    try:
        reward = load_reward(Path(section.init_from).expanduser(), "last")
    except UserError as error:
        raise UserError(f"{error} ({SECTION}.init_from)") from None
    if not reward.reads_only_messages:
        raise UserError(f"the reward in {section.init_from!r} reads more than messages ({SECTION}.init_from)")
    if isinstance(kind, Ranking):
        if reward.options["message"] != section.message:
            raise UserError(
                f"the reward in {section.init_from!r} has the encoder {reward.options['message']!r}, not "
                f"{section.message!r} ({SECTION}.message, .init_from)"
            )
        kind.start_from(reward.params, RunningStats(WEIGHT, reward.statistics.mean, reward.statistics.variance))
        return None
    return _labels(reward, config.policy.threshold_quantile)


def _labels(reward: Reward, quantile: float) -> Opinion:
    threshold = reward.statistics.quantile(quantile) if quantile >= 0 else 0.0

    def opinion(messages: np.ndarray) -> np.ndarray:
        return (reward(messages).normalised > threshold).astype(np.float32)

    return opinion
