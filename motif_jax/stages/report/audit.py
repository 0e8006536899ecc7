"""The report's part on the audit of the reward: findings, worst first, and what the agent was paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.pages.blocks import table
from motif_jax.pages.formats import count, esc, exact, number
from motif_jax.stages.report.found import Kinds, checked, read_object, whole

FINDING: Kinds = {"check": str, "sentence": str, "advice": str}
PAID: Kinds = {"captions": str, "share": number, "low": number, "high": number, "times": count, "each": number}


class Audit(NamedTuple):
    """What the audit has written."""

    player: str  # whose pay was looked at; "" if nobody's
    judge: str
    findings: list[dict[str, Any]]
    clear: list[tuple[str, str]]  # checks that found nothing, and what they looked at
    skipped: list[tuple[str, str]]  # checks that could not be made, and why
    paid: list[dict[str, Any]]


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
    rows = [[esc(one["check"]), f"{esc(one['sentence'])}.", esc(one["advice"])] for one in audit.findings]
    body.append(table(("check", "finding, worst first", "try"), rows) if rows else "<p><b>Nothing found.</b></p>")
    clear = "; ".join(f"{esc(name)} ({esc(about)})" if about else esc(name) for name, about in audit.clear)
    body += [f'<p class="soft">Nothing found by: {clear}.</p>'] if clear else []
    skipped = "; ".join(f"{esc(name)}: {esc(why)}" for name, why in audit.skipped)
    body += [f'<p class="soft">Not looked at: {skipped}.</p>'] if skipped else []
    if audit.paid:
        cells = [
            [f"{one['share']:.1%} <span class=\"soft\">[{one['low']:.1%}, {one['high']:.1%}]</span>",
             esc(one["captions"]), f"{one['times']:,}", *map(_cell, (one["each"], one["reward"], one["worth"]))]
            for one in audit.paid
        ]  # fmt: skip
        head = ("share of the pay", "captions", "times", "pay each time", "reward", "worth to the judge")
        body += ["<h3>What the agent is paid for</h3>", table(head, cells, numbers=(2, 3, 4, 5))]
    return body


def _cell(value: float | None) -> str:
    return "–" if value is None else exact(value)
