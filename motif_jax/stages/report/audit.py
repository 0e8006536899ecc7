"""The report's parts on audits of the reward: findings, worst first, and what the agent was paid for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from motif_jax.files import read_lines
from motif_jax.pages.blocks import table
from motif_jax.pages.formats import count, esc, exact, number
from motif_jax.stages.report.found import Kinds, checked, read_object, whole
from motif_jax.stages.report.parts import Facts

FINDING: Kinds = {"check": str, "sentence": str, "advice": str}
PAID: Kinds = {"captions": str, "share": number, "low": number, "high": number, "times": count, "each": number}
FLOWN: Kinds = {"captions": str, "share": number, "times": count}
WORTHS = {1.0: "better than nothing", 0.0: "neutral", -1.0: "worse than nothing", None: "no label"}


class Audit(NamedTuple):
    """What the audit has written."""

    player: str  # whose pay was looked at; "" if nobody's
    judge: str
    findings: list[Facts]
    clear: list[tuple[str, str]]  # checks that found nothing, and what they looked at
    skipped: list[tuple[str, str]]  # checks that could not be made, and why
    paid: list[Facts]


def find_audit(path: Path) -> Audit | None:
    """The audit of a workdir; None if there is none."""
    file = path / "audit" / "audit.json"
    if (facts := read_object(file)) is None:
        return None
    with checked(file):
        return Audit(
            str(facts["player"]), str(facts["judge"]), [whole(one, FINDING) for one in facts["findings"]],
            [(str(one["check"]), str(one["about"])) for one in facts["nothing_found"]],
            [(str(one["check"]), str(one["why"])) for one in facts["not_looked_at"]],
            [whole(one, PAID) | {name: None if one[name] is None else number(one[name]) for name in ("reward", "worth")}
             for one in facts["paid"]],
        )  # fmt: skip


def of_audit(audit: Audit) -> list[str]:
    """The part on the audit, as HTML."""
    words = [f"judged by {esc(audit.judge)}", *([f"the pay of {esc(audit.player)}"] if audit.player else [])]
    body = [f'<p class="soft">{" · ".join(words)}</p>']
    body += _findings(audit.findings, audit.clear, audit.skipped)
    if audit.paid:
        cells = [
            [f"{one['share']:.1%} <span class=\"soft\">[{one['low']:.1%}, {one['high']:.1%}]</span>",
             esc(one["captions"]), f"{one['times']:,}", *map(_cell, (one["each"], one["reward"], one["worth"]))]
            for one in audit.paid
        ]  # fmt: skip
        head = ("share of the pay", "captions", "times", "pay each time", "reward", "worth to the judge")
        body += ["<h3>What the agent is paid for</h3>", table(head, cells, numbers=(2, 3, 4, 5))]
    return body


def _findings(findings: list[Facts], clear: list[tuple[str, str]], skipped: list[tuple[str, str]]) -> list[str]:
    rows = [[esc(one["check"]), f"{esc(one['sentence'])}.", esc(one["advice"])] for one in findings]
    body = [table(("check", "finding, worst first", "try"), rows) if rows else "<p><b>Nothing found.</b></p>"]
    named = "; ".join(f"{esc(name)} ({esc(about)})" if about else esc(name) for name, about in clear)
    body += [f'<p class="soft">Nothing found by: {named}.</p>'] if named else []
    named = "; ".join(f"{esc(name)}: {esc(why)}" for name, why in skipped)
    return [*body, f'<p class="soft">Not looked at: {named}.</p>'] if named else body


class LastAudit(NamedTuple):
    """The last audit during training."""

    when: str
    goal: str
    findings: list[Facts]
    skipped: list[tuple[str, str]]  # checks that could not be made, and why
    paid: list[Facts]


def find_flown(path: Path) -> LastAudit | None:
    """The last audit during the training of a workdir's policy; None if there is none."""
    file = path / "policy" / "audit.jsonl"
    with checked(file):
        rows = list(read_lines(file)) if file.is_file() else []
        if not rows:
            return None
        last = rows[-1]
        skipped = [(str(one["check"]), str(one["why"])) for one in last["not_looked_at"]]
        paid = [whole(one, FLOWN) | {"worth": WORTHS[one["worth"]]} for one in last["paid"]]
        when = f"at {count(last['env_steps']):,} steps, over the last {count(last['episodes']):,} episodes"
        return LastAudit(when, str(last["goal"]), [whole(one, FINDING) for one in last["findings"]], skipped, paid)


def of_flown(flown: LastAudit) -> list[str]:
    """The last audit during training, as HTML."""
    body = [f'<p class="soft">{esc(flown.when)} · goal: {esc(flown.goal)}</p>']
    body += _findings(flown.findings, [], flown.skipped)
    if flown.paid:
        cells = [[f"{one['share']:.1%}", esc(one["captions"]), f"{one['times']:,}", one["worth"]] for one in flown.paid]
        body.append(table(("share of the pay", "captions", "times paid", "to the judge"), cells, numbers=(2,)))
    return body


def _cell(value: float | None) -> str:
    return "–" if value is None else exact(value)
