"""The report's part on a reward that was written as a program: the best one, and all that were tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.pages.blocks import table, tiles
from motif_jax.pages.formats import count, esc, number
from motif_jax.stages.report.found import checked, read_object
from motif_jax.stages.report.parts import Facts
from motif_jax.stages.write_reward.names import RECORD, SCRIPTED, STAGE_NAME

SHOWN = 200  # programs
LONGEST = 500  # characters of a program in the table


class Trial(NamedTuple):
    """A program of a round, or a text that could not be read."""

    round: int
    program: str
    agreement: float | None  # with the judge; None: it had no verdicts, or the text could not be read
    findings: list[str]
    error: str


class Written(NamedTuple):
    """What the stage write_reward has written."""

    goal: str
    writer: str
    judge: str
    best: Trial
    on_others: float | None  # agreement on pairs that did not choose
    learnt: float | None  # share of the pairs in which a learnt reward prefers the other episode
    episodes: int
    pairs: tuple[int, int]  # that chose, and others
    trials: list[Trial]


def find_written(path: Path) -> Written | None:
    """The programs of a workdir; None if none were written."""
    file = path / STAGE_NAME / RECORD
    if (facts := read_object(file)) is None:
        return None
    with checked(file):
        choosing, others = map(count, facts["pairs"])
        writer = "templates, which know nothing of games" if facts["writer"] == SCRIPTED else str(facts.get("model"))
        trials = [_trial(number, row) for number, rows in enumerate(facts["rounds"]) for row in rows]
        return Written(
            str(facts["goal"]), writer, str(facts["judge"]), _trial(-1, facts["best"]),
            _share(facts["agreement_on_others"]), _share(facts["best"].get("learnt_disagrees")),
            count(facts["episodes"]), (choosing, others), trials,
        )  # fmt: skip


def of_written(written: Written) -> list[str]:
    """The part on the programs, as HTML."""
    best, (choosing, others) = written.best, written.pairs
    words = [f"goal: {written.goal}", f"written by {written.writer}", f"judged by {written.judge}"]
    figures = [
        (_percent(best.agreement), f"of the {choosing:,} pairs of episodes that chose: agrees with the judge"),
        (_percent(written.on_others), f"of {others:,} others"),
        *(
            []
            if written.learnt is None
            else [(_percent(written.learnt), "of them: the learnt reward prefers otherwise")]
        ),
        (f"{len(written.trials):,}", "programs tried"),
        (f"{written.episodes:,}", "recorded episodes"),
    ]
    found = "".join(f"<li>{esc(one)}</li>" for one in best.findings)
    rows = [
        [str(trial.round), f"<code>{esc(_cut(trial.program))}</code>", _percent(trial.agreement),
         esc("; ".join(trial.findings) or trial.error)]
        for trial in written.trials[:SHOWN]
    ]  # fmt: skip
    more = len(written.trials) - SHOWN
    return [
        f'<p class="soft">{esc(" · ".join(words))}</p>',
        tiles(figures),
        f"<pre>{esc(best.program)}</pre>",
        f"<p>Found on recorded episodes:</p><ul>{found}</ul>" if found else '<p class="soft">Nothing found.</p>',
        "<h3>All programs</h3>",
        table(("round", "program", "agrees", "found, or why it cannot be read"), rows, numbers=(0, 2)),
        *([f'<p class="soft">{more:,} more are in {esc(f"{STAGE_NAME}/{RECORD}")}.</p>'] if more > 0 else []),
    ]


def _trial(round_number: int, row: Facts) -> Trial:
    findings = [str(one) for one in row.get("findings", [])]
    if "trained" in row:
        agent, random = map(number, row["trained"]["return"])
        findings.append(f"an agent that was trained with it returns {agent:.3g} (random play: {random:.3g})")
    return Trial(round_number, str(row["program"]), _share(row.get("agreement")), findings, str(row.get("error", "")))


def _share(value: Any) -> float | None:
    return None if value is None else number(value)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]} …"
