"""The record of an audit: what it was made from, its findings, and how they are told in the terminal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

import motif_jax
from motif_jax.config.table import flatten
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import texts_of
from motif_jax.pages.blocks import table
from motif_jax.pages.findings import findings_blocks
from motif_jax.pages.formats import esc, exact
from motif_jax.run import Run
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.annotate.setup import label_name
from motif_jax.stages.evaluate.summary import SUMMARY, read_json

if TYPE_CHECKING:
    from motif_jax.audit.examine import Audited, Evidence

FILE = "audit.json"
SHOWN = 12  # kinds of captions in the table of pay
RANDOM = "random"


class Player(NamedTuple):
    """An evaluated player."""

    name: str
    facts: Mapping[str, Any]  # its summary


def find_players(workdir: Path) -> dict[str, Player]:
    """The `agent` to look at, and `random` play in the same games, as far as they were evaluated.

    The agent is this workdir's own at its latest checkpoint, else another policy, else random play itself.
    """
    every = []
    for file in sorted((workdir / "evaluate").glob(f"*/{SUMMARY}")):
        facts = read_json(file)
        if facts and not facts.get("protocol") and not facts.get("decoding"):
            every.append(Player(file.parent.name, facts))
    every.sort(key=lambda one: (one.facts["path"] == ".", bool(one.facts["path"]), one.facts["step"]))
    found = {"agent": every[-1]} if every else {}
    return found | {one.name: one for one in every if one.name == RANDOM}


def stamp_of(config: ConfigDict, workdir: Path) -> str:
    """A checksum of everything that the audit is made from."""
    judge = flatten(config.annotate.to_dict())
    decisive = {name: judge[name] for name, known in ANNOTATION["annotate"].items() if known.decides}
    reward = [config.policy[name] for name in ("reward_dir", "reward_checkpoint", "reference_alignment")]
    facts = [
        config.audit.to_dict(),
        config.seed,
        reward,
        decisive,
        texts_of(config.env, config.annotate.lexicon).rules().version,
        motif_jax.__version__,
    ]
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    files = [workdir / "evaluate" / one.name / SUMMARY for one in find_players(workdir).values()]
    files += [workdir / "reward" / "statistics.json", *sorted((workdir / "annotations").glob("*/merged.json"))]
    files += [Path(second) / "reward" / "statistics.json"] if (second := config.audit.second_reward_dir) else []
    for file in files:
        found.update(file.read_bytes() if file.is_file() else b"-")
    return found.hexdigest()


def record_of(
    config: ConfigDict, workdir: Path, players: Mapping[str, Player], evidence: Evidence, audited: Audited
) -> dict[str, Any]:
    """The content of `audit.json`."""
    findings, judge = audited.findings, label_name(config.annotate)
    learnt_from = (read_json(workdir / "reward" / "statistics.json") or {}).get("annotators") or {judge: 1.0}
    if judge not in learnt_from:
        judge += f" (the reward was learnt from {', '.join(learnt_from)})"
    return {
        "player": players["agent"].name if players else "",
        "judge": judge,
        "findings": [one._asdict() for one in findings.found],
        "nothing_found": [{"check": one.name, "about": one.about} for one in findings.clear],
        "not_looked_at": [{"check": one.name, "why": one.skipped} for one in findings.skipped],
        "paid": _paid(audited, evidence),
    }


def _paid(audited: Audited, evidence: Evidence) -> list[dict[str, Any]]:
    """The kinds of captions that get most of the pay."""
    from motif_jax.audit.examine import group_values
    from motif_jax.audit.pay import ends

    paid, captions = audited.paid, audited.captions
    if paid is None:
        return []
    values = group_values(captions, evidence.seen()[1])
    rows = []
    for group in np.argsort(-paid.share, kind="stable")[:SHOWN]:
        share = float(paid.share[group])
        if not share > 0:
            break
        low, high = ends(share, float(paid.error[group]))
        each = share * float(paid.total.sum()) / int(paid.times[group])
        rows.append({
            "captions": captions.names[group], "share": share, "low": max(low, 0.0), "high": min(high, 1.0),
            "times": int(paid.times[group]), "each": each, "reward": float(values[group]),
            "worth": float(captions.worth[group]),
        })  # fmt: skip
    return rows


def tell(record: Mapping[str, Any], file: Path) -> None:
    """Prints the findings, worst first."""
    found = record["findings"]
    by = f", judged by {record['judge']}"
    many = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    print_line(f"audit: {many if found else 'nothing found'}{by}")
    for number, one in enumerate(found, 1):
        print_line(f"audit: {number}. {clean(one['check'])}: {clean(one['sentence'])}. Try {one['advice']}.")
    for one in record["nothing_found"]:
        print_line(f"audit: {one['check']}: nothing found ({clean(one['about'])})")
    for one in record["not_looked_at"]:
        print_line(f"audit: {one['check']}: not looked at: {clean(one['why'])}")
    print_line(f"audit: {file}")


def report_audit(workdir: Path, record: Mapping[str, Any]) -> None:
    """Writes the part of the report: findings, worst first, and what the agent was paid for."""
    words = [
        f"judged by {esc(record['judge'])}",
        *([f"the pay of {esc(record['player'])}"] if record["player"] else []),
    ]
    body = [f'<p class="soft">{" · ".join(words)}</p>']
    body += findings_blocks(record["findings"], record["nothing_found"], record["not_looked_at"])
    if record["paid"]:
        cells = [
            [f"{one['share']:.1%} <span class=\"soft\">[{one['low']:.1%}, {one['high']:.1%}]</span>",
             esc(one["captions"]), f"{one['times']:,}", *map(_cell, (one["each"], one["reward"], one["worth"]))]
            for one in record["paid"]
        ]  # fmt: skip
        head = ("share of the pay", "captions", "times", "pay each time", "reward", "worth to the judge")
        body += ["<h3>What the agent is paid for</h3>", table(head, cells, numbers=(2, 3, 4, 5))]
    stage = Run(workdir).stage("audit", "audit")
    stage.section("The audit", *body)
    stage.report()


def _cell(value: float) -> str:
    return exact(value) if math.isfinite(value) else "–"
