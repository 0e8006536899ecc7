"""What a workdir holds, as the report shows it: one type per part. None, or empty, where a stage has not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.charts import Interval
from motif_jax.preferences.store import PairDataset

Facts = dict[str, Any]
SPREADS = {"score": "Score so far", "max_depth": "Deepest level so far"}  # shown of the moments, by array of info/


class Pairs(NamedTuple):
    """The dataset."""

    facts: Facts  # of dataset.json
    ran: Facts  # of run.json
    dataset: PairDataset
    machine: Facts
    made: str  # date


class Annotation(NamedTuple):
    """Labels by somebody."""

    name: str
    counts: dict[str, int]  # of first, second, tie, unknown
    facts: Facts  # backend and goal; empty for labels that others made
    logs: list[Facts]  # of the jobs
    told: Facts  # questions, most_asked, most_asked_with_preference, bias
    page: str  # where it is shown, seen from the report; "" if it is not


class Learnt(NamedTuple):
    """The reward."""

    annotators: dict[str, float]  # with weights; empty for one that was taken over from elsewhere
    epoch: int
    parameters: int  # 0: not told
    history: list[Facts]  # a row per epoch; what was not known is not in it
    quantiles: dict[float, float]  # of the normalised reward over captions, by level; empty where not told
    captions: Facts | None  # what it likes, where messages alone decide
    machine: Facts
    page: str
    made: str


class Training(NamedTuple):
    """The policy's."""

    rows: list[dict[str, float]]  # of metrics.jsonl, at least one; what is not known is not in it
    summary: Facts  # of when it was finished or stopped last; empty if it never was
    pay: Facts  # algorithm, network, coefficients, threshold
    task: str
    config: Facts  # the whole of it
    machine: Facts
    made: str

    @property
    def is_over(self) -> bool:
        """Whether nothing was done after the summary, which is also written where training is stopped."""
        return bool(self.summary) and self.summary["env_steps"] >= self.rows[-1]["env_steps"]

    @property
    def steps(self) -> int:
        """So far."""
        return int(self.summary["env_steps"] if self.is_over else self.rows[-1]["env_steps"])

    @property
    def seconds(self) -> float:
        """So far."""
        return float(self.summary["seconds"] if self.is_over else self.rows[-1]["seconds"])

    @property
    def episodes(self) -> int:
        """So far."""
        return int(self.summary["episodes"] if self.is_over else self.rows[-1].get("episode/all", 0))


class Player(NamedTuple):
    """Who was evaluated."""

    name: str
    path: str  # "." for this workdir's policy, "" for scripted players
    step: int
    greedy: bool
    episodes: int
    task: str
    reward: str | None  # which learnt reward its episodes were valued by
    figures: dict[str, Interval | None]
    did: dict[str, Interval]  # per episode
    ends: dict[str, int]
    replays: list[Path]


class Found(NamedTuple):
    """A workdir."""

    name: str
    path: Path
    pairs: Pairs | None
    annotations: list[Annotation]
    learnt: Learnt | None
    training: Training | None
    players: list[Player]  # its own policy's first, chance last
    machine: Facts  # that the latest of these parts was made on, as far as that is told

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.pairs or self.learnt or self.training or self.players)

    @property
    def own(self) -> Player | None:
        """Its own policy, the latest that was evaluated."""
        return self.players[0] if self.players and self.players[0].path == "." else None

    @property
    def chance(self) -> Player | None:
        """Random play."""
        return next((player for player in self.players if player.name == "random"), None)

    @property
    def labelled(self) -> list[Annotation]:
        """Annotations that the reward was learnt from; all there are where that is not known."""
        names = self.learnt.annotators if self.learnt else {}
        return [one for one in self.annotations if one.name in names] or self.annotations

    @property
    def goal(self) -> str:
        """What the annotator was asked for; "" where that is not known."""
        goals = dict.fromkeys(str(one.facts["goal"]) for one in self.labelled if one.facts.get("goal"))
        return ", ".join(goals)
