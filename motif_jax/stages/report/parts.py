"""Types for the parts of a report; a part is None or empty if its stage has not run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.pages.formats import Interval
from motif_jax.preferences.store import PairDataset

Facts = dict[str, Any]
SPREADS = {"score": "Score so far", "max_depth": "Deepest level so far"}  # titles of the histograms, by array of info/


class Pairs(NamedTuple):
    """The dataset of pairs, as the collect stage wrote it."""

    facts: Facts  # of dataset.json
    ran: Facts  # of run.json
    dataset: PairDataset
    machine: Facts
    made: str  # date


class Annotation(NamedTuple):
    """The labels of one annotator, and how they were made."""

    name: str
    counts: dict[str, int]  # of first, second, tie, unknown, not asked
    facts: Facts  # backend and goal; empty for labels that others made
    logs: list[Facts]  # of the jobs
    page: str  # its page, relative to the report; "" if it does not exist


class Learnt(NamedTuple):
    """The learnt reward and how it was trained."""

    annotators: dict[str, float]  # weights by name; empty for an imported reward
    epoch: int
    parameters: int  # 0: not known
    history: list[Facts]  # a row per epoch; unknown values are left out
    quantiles: dict[float, float]  # of the normalised reward over captions, by level; empty if not known
    captions: Facts | None  # captions with their rewards; None unless messages alone decide
    machine: Facts
    page: str
    made: str


class Training(NamedTuple):
    """The training of the policy."""

    rows: list[dict[str, float]]  # of metrics.jsonl, at least one; unknown values are left out
    summary: Facts  # written when training ends or is stopped; empty before
    settings: Facts  # algorithm, network, reward sources, coefficients, threshold
    task: str
    config: Facts  # all sections
    machine: Facts
    made: str

    @property
    def is_over(self) -> bool:
        """Whether the summary is up to date: it is also written when training is stopped, which may then go on."""
        return bool(self.summary) and self.summary["env_steps"] >= self.rows[-1]["env_steps"]

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return int(self.summary["env_steps"] if self.is_over else self.rows[-1]["env_steps"])

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return float(self.summary["seconds"] if self.is_over else self.rows[-1]["seconds"])

    @property
    def speed(self) -> float | None:
        """Steps per second; None for less than half a second, as the first update is not timed."""
        return self.steps / self.seconds if self.seconds >= 0.5 else None

    @property
    def episodes(self) -> int:
        """Finished episodes so far."""
        return int(self.summary["episodes"] if self.is_over else self.rows[-1].get("episode/all", 0))


class HowDecoded(NamedTuple):
    """How a policy that writes is decoded."""

    kind: str  # with a remark if the policy's logits are left out
    beta: float
    by_values: bool  # whether values matter, by beta or by ranks of candidates

    @staticmethod
    def of(facts: Facts | None) -> HowDecoded | None:
        """Reads the record of an evaluation; None for players that do not write. ValueError if it is damaged."""
        if not facts:
            return None
        kind, beta, ranks = str(facts["kind"]), float(facts["beta"]), float(facts["rerank_values"])
        if not math.isfinite(beta):
            raise ValueError(f"beta is {beta}, which is not finite")
        alone = "" if facts["include_logits"] else ", without logits"
        return HowDecoded(kind + alone, beta, bool(beta or (kind == "rerank" and ranks)))


class EvaluatedPlayer(NamedTuple):
    """An evaluated player and its results."""

    name: str
    path: str  # "." for this workdir's policy, "" for scripted players
    step: int
    greedy: bool
    episodes: int
    task: str
    reward: str | None  # checksum of the learnt reward that valued its episodes
    figures: dict[str, Interval | None]
    did: dict[str, Interval]  # per episode
    ends: dict[str, int]
    replays: list[Path]
    returns: dict[str, Interval]  # of the reward sources beside the learnt reward, by name
    terms: dict[str, dict[str, Interval]]  # returns of the terms of reward programs, by source and text
    sources: Facts  # facts about these sources; equal facts mean equal rewards
    aims: frozenset[str]  # behaviours that the game's goals ask for
    protocol: str = ""  # the rules of its games; "": those of the workdir
    decoding: HowDecoded | None = None  # of a policy that writes
    recipe: str = ""  # the algorithm that learnt its values
    repeatable: bool = True  # whether its games can be repeated exactly
    option: str = ""  # the option that plays alone, of a policy with options

    @property
    def kind(self) -> str:
        """How it is decoded."""
        return self.decoding.kind if self.decoding else ""

    @property
    def beta(self) -> float:
        """The factor of Q - V in its decoding."""
        return self.decoding.beta if self.decoding else 0.0

    @property
    def by_values(self) -> bool:
        """Whether values influence its texts."""
        return bool(self.decoding and self.decoding.by_values)


class Found(NamedTuple):
    """Everything that the report shows of one workdir."""

    name: str
    path: Path
    pairs: Pairs | None
    annotations: list[Annotation]
    learnt: Learnt | None
    training: Training | None
    players: list[EvaluatedPlayer]  # the workdir's policy first, random play last
    machine: Facts  # of the latest part that names one
    by_protocol: dict[str, list[EvaluatedPlayer]]  # players of other rules (envs/protocols.py), likewise
    offline: Mapping[str, Any] = {}  # the config of offline learning; empty without it

    @property
    def is_empty(self) -> bool:
        """Whether all parts are missing."""
        return not (self.pairs or self.learnt or self.training or self.players or self.by_protocol)

    @property
    def own(self) -> EvaluatedPlayer | None:
        """The evaluation of the workdir's own policy, at its latest evaluated checkpoint."""
        return self.players[0] if self.players and self.players[0].path == "." else None

    def by(self, rules: str) -> Found:
        """This workdir with only the players of a protocol; "": those of the workdir's own rules."""
        return self._replace(players=self.by_protocol.get(rules, [])) if rules else self

    @property
    def evaluated(self) -> EvaluatedPlayer | None:
        """As `own`, or by other rules where it was evaluated by those alone."""
        return next((one for rules in ("", *self.by_protocol) if (one := self.by(rules).own)), None)

    @property
    def chance(self) -> EvaluatedPlayer | None:
        """The evaluation of random play."""
        named = {player.name.removesuffix(f"-{player.protocol}"): player for player in self.players}
        return named.get("random")

    @property
    def labelled(self) -> list[Annotation]:
        """The annotations that the reward was learnt from; all of them if that is not known."""
        names = self.learnt.annotators if self.learnt else {}
        return [one for one in self.annotations if one.name in names] or self.annotations

    @property
    def goal(self) -> str:
        """The annotator's goal; "" if it is not known."""
        goals = dict.fromkeys(str(one.facts["goal"]) for one in self.labelled if one.facts.get("goal"))
        return ", ".join(goals)
