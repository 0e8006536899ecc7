"""The report: one page about the goal, the learnt reward, the training of the agent, and its evaluation.

`workdir/report/index.html` is self-contained; it links to the workdir's pages about the annotations and the reward.
Each stage has written its own sections when it ended (`run.StageRun.section`); the report arranges them, and adds what
compares several runs. The stage is complete until a section changes. The same sections give the same page, byte for
byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import motif_jax
from motif_jax.config.table import PATHS, Tables, Whole, check_values, table_of, value
from motif_jax.console import print_line
from motif_jax.files import read_json, write_json, write_whole
from motif_jax.pages.blocks import asset, folded, page, table
from motif_jax.pages.formats import esc, machine_words
from motif_jax.pages.player import WATCHED, Watched, choose, replay_blocks
from motif_jax.pages.players import SUMMARIES
from motif_jax.run import SECTIONS, Run
from motif_jax.stages import EXPERIMENT, Stage, without_lock
from motif_jax.stages.report.record import RunRecord, by_stage, read_record
from motif_jax.stages.report.runs import by_name, of_runs
from motif_jax.stages.report.seeds import write_page_over_seeds as write_page_over_seeds
from motif_jax.structs import UserError

FLAG = "--config.report.runs"
MADE_OF = (f"{SECTIONS}/*.json", "policy/metrics.jsonl", SUMMARIES, f"evaluate/*/{WATCHED}.json")
PARTS = {  # titles of sections in the order of the page, and the stages that are expected to write them
    "Watch it play": "evaluate", "Runs side by side": "", "Decoding with values": "", "Token by token": "",
    "Evaluation": "evaluate", "Training the agent": "train_policy", "The audit": "audit", "The judge": "",
    "The written reward": "write_reward", "The reward": "train_reward", "Preferences": "annotate",
    "Learning from transcripts": "train_values", "The transcripts": "collect", "The dataset": "collect",
    "What it ran on": "",
}  # fmt: skip


@dataclass(frozen=True)
class Report:
    """The report page."""

    runs: str = value("", PATHS, "other workdirs to compare this one with: runs/a,runs/b")
    replays: int = value(5, Whole(), "maximum number of replays on the page")


TABLES: Tables = {"report": table_of(Report)}
READS: Tables = EXPERIMENT | TABLES


def other_runs(config: ConfigDict) -> list[Path]:
    """The workdirs to compare this one with, without duplicates, in the config's order."""
    paths = [Path(name.strip()) for name in config.report.runs.split(",") if name.strip()]
    return list({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    for path in other_runs(config):
        if not path.is_dir():
            raise UserError(f"there is no workdir {str(path)!r} ({FLAG})")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the page exists and is up to date."""
    record = workdir / "report" / "report.json"
    page = workdir / "report" / "index.html"
    return record.is_file() and page.is_file() and read_json(record) == about(config, workdir)


def about(config: ConfigDict, workdir: Path) -> dict[str, str]:
    """A checksum of the settings and files that the page is made from, and the version of this program."""
    stamps = []
    for path in (workdir, *other_runs(config)):
        for file in (file for pattern in MADE_OF for file in sorted(path.glob(pattern))):
            with contextlib.suppress(FileNotFoundError):  # another job may have removed it
                stamps.append((str(file), (status := file.stat()).st_size, status.st_mtime_ns))
    facts = repr((config.report.to_dict(), stamps)).encode()
    return {"made_of": hashlib.sha256(facts).hexdigest(), "motif_jax": motif_jax.__version__}


def run(config: ConfigDict, workdir: Path) -> None:
    """Writes the page and its checksum to `workdir/report`."""
    home = workdir / "report"
    made_of = about(config, workdir)  # before anything is read, so that later changes make the page stale
    if not Run(workdir).heads():
        raise UserError(f"there is nothing in {str(workdir)!r} to report yet: run --stage=collect first (--workdir)")
    others = [path for path in other_runs(config) if path.resolve() != workdir.resolve()]
    for other in others:
        if not Run(other).heads():
            raise UserError(f"there is nothing in {str(other)!r} to compare with ({FLAG})")
    text = compose(config, [read_record(path) for path in (workdir, *others)], home)
    write_whole(home / "index.html", lambda file: file.write(text.encode("utf-8", "replace")))
    write_json(home / "report.json", made_of)
    print_line(f"report: {home / 'index.html'}")


def compose(config: ConfigDict, runs: list[RunRecord], home: Path) -> str:
    """The whole page as HTML; the first of `runs` is this workdir."""
    found = runs[0]
    watched = Run(found.path).read_each(f"evaluate/*/{WATCHED}.json", Watched)
    played = [(one.path == ".", watched[one.name]) for one in found.players if one.name in watched]
    replays = choose(played, config.report.replays)
    written = {"Watch it play": replay_blocks(replays) if replays else [], "What it ran on": ran_on(found)}
    if len(runs) > 1:
        written["Runs side by side"] = of_runs(by_name(runs), home)
    for one in sorted(Run(found.path).sections(), key=lambda one: by_stage(one.stage)):
        written.setdefault(one.title, []).extend(one.blocks)
    shown = {title: written[title] for title in dict.fromkeys([*PARTS, *written]) if written.get(title)}
    in_words = "The transcripts" in written or config.collect.transcripts > 0  # then collect does not make pairs
    optional = "The dataset" if in_words else "The transcripts"
    missing = [
        f"{title} (--stage={stage})"
        for title, stage in reversed(PARTS.items())
        if stage in config.stages and title not in (*shown, optional)
    ]
    links = "".join(f'<a href="#{anchor(title)}">{esc(title)}</a>' for title in shown)
    body = [*first_screen(found), f'<nav class="pages" aria-label="parts">{links}</nav>']
    for title, part in shown.items():
        body += [f'<section><h2 id="{anchor(title)}">{esc(title)}</h2>', *part, "</section>"]
    body += [f'<p class="absent">Not there yet: {"; ".join(missing)}.</p>'] if missing else []
    style = f"<style>{asset('player.css')}</style>" if replays else ""
    name = f"{found.name}: report"
    return page(name, [style, "<main>", *body, "</main>"], ["player.js"] if replays else [])


def first_screen(found: RunRecord) -> list[str]:
    """The head of the page as HTML: title, one paragraph, and the agent's figures beside those of random play."""
    head = found.head
    title = head.title or f"{head.subject or 'An experiment'} {head.aim or head.without_aim or ''}"
    sentences = " ".join(filter(None, (head.asked, head.trained, head.played)))
    named = ("motif_jax", head.task and f"task {head.task}", found.name, head.made)
    return [
        f'<header class="hero{" wide" if head.beside else ""}"><div>'
        f'<p class="eyebrow">{esc(" · ".join(filter(None, named)))}</p>'
        f'<h1>{title.strip()}</h1><p class="lead">{sentences}</p></div>{head.beside or ""}</header>'
    ]


def ran_on(found: RunRecord) -> list[str]:
    """The part on the machine, as HTML: machine, versions, dates, and the whole config."""
    machine, config = found.head.machine or {}, found.head.config or {}
    rows: list[tuple[str, Any]] = [("processor", machine_words(machine))]
    if machine.get("memory_gib"):
        rows.append(("memory", f"{machine['memory_gib']} GiB"))
    if machine.get("system"):
        rows.append(("system", esc(f"{machine['system']}, Python {machine.get('python', '')}")))
    rows += [("commit", esc(machine.get("commit", ""))), ("versions", found.versions)]
    rows += [
        (f"{what} made", esc(found.made[stage]))
        for what, stage in (("dataset", "collect"), ("reward", "train_reward"), ("policy", "train_policy"))
        if stage in found.made
    ]
    rows += [("seed", esc(config["seed"]))] if "seed" in config else []
    body = [table(("", ""), [[esc(name), value] for name, value in rows if value], kind="fits")]
    return [*body, folded("the whole config", json.dumps(config, indent=2, sort_keys=True))] if config else body


def anchor(title: str) -> str:
    """The HTML id of a part, by its title."""
    return title.lower().replace(" ", "-")


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=run,
    writes="--config.report.replays",
    memory="--config.report.replays",
    lock=without_lock,
    loads_jax=lambda config: False,
)
