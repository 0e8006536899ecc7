"""The report: one page about the goal, the learnt reward, the training of the agent, and its evaluation.

`workdir/report/index.html` is self-contained; it links to the workdir's pages about the annotations and the reward. It
is made from the artefacts of the other stages, in this workdir and in those to compare it with; parts of stages that
have not run are left out. The stage is complete until one of these artefacts changes. The same artefacts give the same
page, byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

import motif_jax
from motif_jax.config.table import PATHS, Tables, Whole, check_values, table_of, value
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import asset, page
from motif_jax.pages.formats import esc
from motif_jax.run import SECTIONS, Run
from motif_jax.stages import EXPERIMENT, NAMES, Stage, without_lock
from motif_jax.stages.evaluate.summary import SUMMARY
from motif_jax.stages.report.audit import find_audit, of_audit
from motif_jax.stages.report.data import of_annotations, of_pairs
from motif_jax.stages.report.found import read_workdir
from motif_jax.stages.report.head import first_screen, ran_on
from motif_jax.stages.report.judge import find_judged, of_judge
from motif_jax.stages.report.letters import find_letters, of_letters
from motif_jax.stages.report.parts import Found
from motif_jax.stages.report.players import of_evaluation
from motif_jax.stages.report.policy import of_policy
from motif_jax.stages.report.replays import choose, of_replays
from motif_jax.stages.report.reward import of_reward
from motif_jax.stages.report.runs import by_name, of_runs
from motif_jax.stages.report.seeds import write_page_over_seeds as write_page_over_seeds
from motif_jax.stages.report.values import (
    decoded,
    find_recorded,
    of_recorded,
    of_sweep,
    sentence,
)
from motif_jax.structs import UserError
from motif_jax.system.files import read_json, write_json

FLAG = "--config.report.runs"
# Parts that stages write.
LEARNING, PREFERENCES, WRITTEN = "Learning from transcripts", "Preferences", "The written reward"
JUDGE = "The judge"


@dataclass(frozen=True)
class Report:
    """The report page."""

    runs: str = value("", PATHS, "other workdirs to compare this one with: runs/a,runs/b")
    replays: int = value(5, Whole(), "maximum number of replays on the page")


TABLES: Tables = {"report": table_of(Report)}
READS: Tables = EXPERIMENT | TABLES
MADE_OF = (
    "dataset/*.json", "dataset/data/*.npy", "dataset/info/*.npy", "dataset/preference/*.npy",
    "dataset/preference/*/merged.json", "annotations/*/*.json", "annotations/*.html", "annotations/*.json",
    "reward/*.json", "reward/*.html", "policy/*.json", "policy/*.jsonl", f"evaluate/*/{SUMMARY}",
    "evaluate/*/replays/*.npz", "evaluate/*/letters.json", "transcripts/transcripts.json", "language/*.json*",
    "values/*.json*", "audit/audit.json", f"{SECTIONS}/*.json",
)  # fmt: skip


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
    try:
        record = read_json(workdir / "report" / "report.json")
    except (OSError, ValueError):
        return False
    page = workdir / "report" / "index.html"
    return page.is_file() and record == about(config, workdir)


def about(config: ConfigDict, workdir: Path) -> dict[str, str]:
    """A checksum of the settings and artefacts that the page is made from, and the version of this program."""
    paths = [workdir, *other_runs(config)]
    stamps = []
    for file in (file for path in paths for pattern in MADE_OF for file in sorted(path.glob(pattern))):
        with contextlib.suppress(FileNotFoundError):  # another job may have removed it
            stamps.append((str(file), (status := file.stat()).st_size, status.st_mtime_ns))
    facts = repr((config.report.to_dict(), stamps)).encode()
    return {"made_of": hashlib.sha256(facts).hexdigest(), "motif_jax": motif_jax.__version__}


def run(config: ConfigDict, workdir: Path) -> None:
    """Writes the page and its checksum to `workdir/report`."""
    home = workdir / "report"
    made_of = about(config, workdir)  # before anything is read, so that later changes make the page stale
    found = read_workdir(workdir, home)
    if found.is_empty and not find_recorded(workdir) and not Run(workdir).sections():
        raise UserError(f"there is nothing in {str(workdir)!r} to report yet: run --stage=collect first (--workdir)")
    others = [read_workdir(path, home) for path in other_runs(config) if path.resolve() != workdir.resolve()]
    for other in others:
        if other.is_empty:
            raise UserError(f"there is nothing in {str(other.path)!r} to compare with ({FLAG})")
    text = compose(config, found, by_name([found, *others]), home)
    write_whole(home / "index.html", lambda file: file.write(text.encode("utf-8", "replace")))
    write_json(home / "report.json", made_of)
    print_line(f"report: {home / 'index.html'}")


def compose(config: ConfigDict, found: Found, runs: dict[str, Found], home: Path) -> str:
    """The whole page as HTML; `found` is this workdir, which is also the first of `runs`."""
    replays, judged = choose(found.players, config.report.replays), find_judged(found.path)
    audit = find_audit(found.path)
    recorded, players, by_stages = find_recorded(found.path), decoded(found), written_by_stages(found.path)
    labelled = {part.part for part in Run(found.path).sections() if part.title == PREFERENCES}
    letters = find_letters(found.path, players)
    in_words = bool(recorded) or config.collect.transcripts > 0  # then the stage collect does not make pairs
    parts = (  # title, HTML, and the stage whose artefacts are shown; "" for optional parts
        ("Watch it play", of_replays(replays) if replays else [], "evaluate"),
        ("Runs side by side", of_runs(runs, home) if len(runs) > 1 else [], ""),
        ("Decoding with values", of_sweep(found) if players else [], ""),
        ("Token by token", of_letters(letters) if letters else [], ""),
        ("Evaluation", of_evaluation(found), "evaluate"),
        ("Training the agent", of_policy(found, found.training) if found.training else [], "train_policy"),
        ("The audit", of_audit(audit) if audit else [], "audit"),
        (JUDGE, [*by_stages.get(JUDGE, []), *(of_judge(found, judged) if judged else [])], ""),
        (WRITTEN, by_stages.get(WRITTEN, []), "write_reward"),
        ("The reward", of_reward(found.learnt, found.training) if found.learnt else [], "train_reward"),
        (
            PREFERENCES,
            [
                *by_stages.get(PREFERENCES, []),
                *of_annotations(one for one in found.annotations if one.name not in labelled),
            ],
            "annotate",
        ),
        (LEARNING, by_stages.get(LEARNING, []), "train_values"),
        ("The transcripts", of_recorded(recorded) if recorded else [], "collect" if in_words else ""),
        ("The dataset", of_pairs(found.pairs) if found.pairs else [], "" if in_words else "collect"),
        ("What it ran on", ran_on(found), ""),
    )
    shown = {title: part for title, part, _ in parts if part}
    due = [(title, stage) for title, part, stage in reversed(parts) if stage in config.stages and not part]
    missing = [f"{title} (--stage={stage})" for title, stage in due]
    links = "".join(f'<a href="#{anchor(title)}">{esc(title)}</a>' for title in shown)
    body = [*first_screen(found, sentence(found, recorded)), f'<nav class="pages" aria-label="parts">{links}</nav>']
    for title, part in shown.items():
        body += [f'<section><h2 id="{anchor(title)}">{esc(title)}</h2>', *part, "</section>"]
    body += [f'<p class="absent">Not there yet: {"; ".join(missing)}.</p>'] if missing else []
    style = f"<style>{asset('player.css')}</style>" if replays else ""
    name = f"{found.name}: report"
    return page(name, [style, "<main>", *body, "</main>"], ["player.js"] if replays else [])


def written_by_stages(workdir: Path) -> dict[str, list[str]]:
    """The parts that the stages wrote, by title; stages that share one stand in the order in which they run."""
    found: dict[str, list[str]] = {}
    for part in sorted(Run(workdir).sections(), key=lambda part: NAMES.index(part.stage)):
        found.setdefault(part.title, []).extend(part.blocks)
    return found


def anchor(title: str) -> str:
    """The HTML id of a part, by its title."""
    return title.lower().replace(" ", "-")


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("report",),
    writes="--config.report.replays",
    memory="--config.report.replays",
    lock=without_lock,
    loads_jax=lambda config: False,
)
