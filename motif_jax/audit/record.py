"""The record of an audit, `audit.json`: its findings and the pay, as lines in the terminal and as HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.audit.findings import Findings
from motif_jax.console import clean, print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import esc, exact, findings_blocks, page, table

FILE = "audit"


def make_record(findings: Findings, player: str, judge: str) -> dict[str, Any]:
    """The content of `audit.json`. `judge`: "" if there is none."""
    return {
        "player": player,
        "judge": judge,
        "findings": [one._asdict() for one in findings.found],
        "nothing_found": [{"check": one.name, "about": one.scope} for one in findings.clear],
        "not_looked_at": [{"check": one.name, "why": one.skipped} for one in findings.skipped],
        "paid": findings.paid,
    }


def describe_file(record: Mapping[str, Any]) -> str:
    """What was read of a file of trajectories, in one line."""
    left = f", {record['unfinished']:,} unfinished episodes left out" if record["unfinished"] else ""
    unread = f"; columns that were not read: {', '.join(record['unread'])}" if record["unread"] else ""
    return f"{record['file']}: {record['episodes']:,} episodes, {record['steps']:,} rows{left}{unread}"


def print_record(record: Mapping[str, Any], file: Path) -> None:
    """Prints the findings, worst first."""
    if "file" in record:
        print_line(f"audit: {describe_file(record)}")
    found = record["findings"]
    by = f", judged by {record['judge']}" if record["judge"] else ""
    many = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    print_line(f"audit: {many if found else 'nothing found'}{by}")
    for number, one in enumerate(found, 1):
        print_line(f"audit: {number}. {clean(one['check'])}: {clean(one['sentence'])}. Try {one['advice']}.")
    for one in record["nothing_found"]:
        print_line(f"audit: {one['check']}: nothing found ({clean(one['about'])})")
    for one in record["not_looked_at"]:
        print_line(f"audit: {one['check']}: not looked at: {clean(one['why'])}")
    print_line(f"audit: {file}")


def record_blocks(record: Mapping[str, Any]) -> list[str]:
    """The findings, worst first, and what the agent was paid for, as HTML."""
    words = [
        *([f"judged by {esc(record['judge'])}"] if record["judge"] else []),
        *([f"the pay of {esc(record['player'])}"] if record["player"] else []),
    ]
    body = [f"<p>{esc(describe_file(record))}</p>"] if "file" in record else []
    body.append(f'<p class="soft">{" · ".join(words)}</p>')
    body += findings_blocks(record["findings"], record["nothing_found"], record["not_looked_at"])
    if record["paid"]:
        cells = [
            [f"{one['share']:.1%} <span class=\"soft\">[{one['low']:.1%}, {one['high']:.1%}]</span>",
             esc(one["captions"]), f"{one['times']:,}", *map(_cell, (one["each"], one["reward"], one["worth"]))]
            for one in record["paid"]
        ]  # fmt: skip
        head = ("share of the pay", "captions", "times", "pay each time", "reward", "worth to the judge")
        body += ["<h3>What the agent is paid for</h3>", table(head, cells, numbers=(2, 3, 4, 5))]
    if rewards := record.get("rewards"):
        rows = [[esc(name), f"{share:.1%}"] for name, share in sorted(rewards.items(), key=lambda one: -one[1])]
        body += ["<h3>Which reward pays</h3>", table(("reward", "share of the pay"), rows, numbers=(1,))]
    return body


def write_page(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes the record of a file as a page of its own, `index.html`."""
    title = f"The audit of {Path(record['file']).name}"
    text = page(title, ["<main>", f"<h1>{esc(title)}</h1>", *record_blocks(record), "</main>"])
    write_whole(folder / "index.html", text)


def _cell(value: float) -> str:
    return exact(value) if math.isfinite(value) else "–"
