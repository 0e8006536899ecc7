"""A run as its stages have recorded it, for the report."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.pages.formats import esc
from motif_jax.pages.players import SUMMARIES, Player, Players, arranged, chance_of, own_of
from motif_jax.run import Head, Run

STAGES = (  # in the order in which they speak on the first screen; of two, the later one is heard
    "collect", "check_judge", "annotate", "write_reward", "train_reward", "train_language", "train_values", "evaluate",
    "train_policy", "audit",
)  # fmt: skip


class RunRecord(NamedTuple):
    """What the report shows of one workdir."""

    name: str
    path: Path
    head: Head  # of all stages together
    made: dict[str, str]  # dates by stage
    rows: list[dict[str, Any]]  # metrics of training
    players: list[Player]  # the workdir's policy first, random play last
    by_protocol: Players  # those of games by other rules, likewise

    def by(self, rules: str) -> RunRecord:
        """This run with only the players by the rules of a protocol; "": those by the workdir's own."""
        return self._replace(players=self.by_protocol.get(rules, [])) if rules else self

    @property
    def own(self) -> Player | None:
        """The evaluation of the workdir's policy, at its latest evaluated checkpoint."""
        return own_of(self.players)

    @property
    def chance(self) -> Player | None:
        """The evaluation of random play."""
        return chance_of(self.players)

    @property
    def evaluated(self) -> Player | None:
        """As `own`, or by other rules where it was evaluated by those alone."""
        return next((one for players in (self.players, *self.by_protocol.values()) if (one := own_of(players))), None)

    @property
    def versions(self) -> str:
        """The versions of the libraries, as HTML."""
        versions = (self.head.machine or {}).get("versions", {})
        return esc(", ".join(f"{name} {version}" for name, version in versions.items()))


def read_record(path: Path) -> RunRecord:
    """Reads what the stages have written in a workdir."""
    run = Run(path)
    heads = dict(sorted(run.heads().items(), key=lambda item: by_stage(item[0][0])))
    said: dict[str, Any] = {}
    for head in heads.values():
        said |= {name: value for name, value in dataclasses.asdict(head).items() if value is not None}
    made = {stage: head.made for (stage, _), head in heads.items() if head.made}
    rows = run.stage("train_policy", "policy").rows()
    others = arranged(run.read_each(SUMMARIES, Player))
    own = others.pop("")
    return RunRecord(path.resolve().name, path, Head(**said), made, rows, own, others)


def by_stage(name: str) -> int:
    """The place of a stage in the order of STAGES."""
    return STAGES.index(name) if name in STAGES else len(STAGES)
