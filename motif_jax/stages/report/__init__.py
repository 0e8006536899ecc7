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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import motif_jax
from motif_jax.config.table import PATHS, Whole, section, value
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages import players
from motif_jax.pages.blocks import asset, folded, noted, page, table
from motif_jax.pages.charts import COLOURS, curves
from motif_jax.pages.figures import curve, curves_of
from motif_jax.pages.formats import amount, duration, esc, machine_words
from motif_jax.pages.players import SUMMARIES, WATCHED, Player, Players, Watched
from motif_jax.run import SECTIONS, Head, Run
from motif_jax.stages import Experiment, Stage, without_lock
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
STAGES = (  # in the order of their figures on the first screen; of two equal titles, the later stage's counts
    "collect", "check_judge", "annotate", "write_reward", "train_reward", "train_language", "train_values", "evaluate",
    "train_policy", "audit",
)  # fmt: skip
ALONE = ("train/entropy", "steps_per_s", "episode/steps")  # not compared: curves that do not show behaviour


@dataclass(frozen=True)
class Report:
    """The report page."""

    runs: str = value("", PATHS, "other workdirs to compare this one with: runs/a,runs/b")
    replays: int = value(5, Whole(), "maximum number of replays on the page")


@dataclass(frozen=True)
class ReportConfig(Experiment):
    """The values that the stage reads."""

    collect: Mapping[str, Any] = section({})  # that stage checks its values
    report: Report = Report()


def other_runs(config: ReportConfig) -> list[Path]:
    """The workdirs to compare this one with, without duplicates, in the config's order."""
    paths = [Path(name.strip()) for name in config.report.runs.split(",") if name.strip()]
    return list({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def check(config: ReportConfig) -> None:
    """Raises UserError for values that cannot work."""
    for path in other_runs(config):
        if not path.is_dir():
            raise UserError(f"there is no workdir {str(path)!r} ({FLAG})")


def is_complete(config: ReportConfig, workdir: Path) -> bool:
    """Whether the page exists and is up to date."""
    made_of = Run(workdir).stage("report", "report").read("report", dict)
    return (workdir / "report/index.html").is_file() and made_of == checksum_of(config, workdir)


def checksum_of(config: ReportConfig, workdir: Path) -> dict[str, str]:
    """A checksum of the settings and files that the page is made from, and the version of this program."""
    stamps = []
    for path in (workdir, *other_runs(config)):
        for file in (file for pattern in MADE_OF for file in sorted(path.glob(pattern))):
            with contextlib.suppress(FileNotFoundError):  # another job may have removed it
                stamps.append((str(file), (status := file.stat()).st_size, status.st_mtime_ns))
    settings = repr((asdict(config.report), stamps)).encode()
    return {"made_of": hashlib.sha256(settings).hexdigest(), "motif_jax": motif_jax.__version__}


def run(config: ReportConfig, workdir: Path) -> None:
    """Writes the page and its checksum to `workdir/report`."""
    stage = Run(workdir).stage("report", "report")
    made_of = checksum_of(config, workdir)  # before anything is read, so that later changes make the page stale
    if not Run(workdir).heads():
        raise UserError(f"there is nothing in {str(workdir)!r} to report yet: run --stage=collect first (--workdir)")
    others = [path for path in other_runs(config) if path.resolve() != workdir.resolve()]
    for other in others:
        if not Run(other).heads():
            raise UserError(f"there is nothing in {str(other)!r} to compare with ({FLAG})")
    text = compose(config, [read_record(path) for path in (workdir, *others)], stage.path)
    write_whole(stage.path / "index.html", text)
    stage.write("report", made_of)
    print_line(f"report: {stage.path / 'index.html'}")


def compose(config: ReportConfig, runs: list[RunRecord], home: Path) -> str:
    """The whole page as HTML; the first of `runs` is this workdir."""
    record = runs[0]
    watched = Run(record.path).read_each(f"evaluate/*/{WATCHED}.json", Watched)
    played = [(one.path == ".", watched[one.name]) for one in record.players if one.name in watched]
    replays = players.choose(played, config.report.replays)
    written = {"Watch it play": players.replay_blocks(replays) if replays else [], "What it ran on": ran_on(record)}
    if len(runs) > 1:
        written["Runs side by side"] = of_runs(by_name(runs), home)
    for one in sorted(Run(record.path).sections(), key=lambda one: by_stage(one.stage)):
        written.setdefault(one.title, []).extend(one.blocks)
    shown = {title: written[title] for title in dict.fromkeys([*PARTS, *written]) if written.get(title)}
    in_words = "The transcripts" in written or config.collect["transcripts"] > 0  # then collect does not make pairs
    optional = "The dataset" if in_words else "The transcripts"
    missing = [
        f"{title} (--stage={stage})"
        for title, stage in reversed(PARTS.items())
        if stage in config.stages and title not in (*shown, optional)
    ]
    links = "".join(f'<a href="#{anchor(title)}">{esc(title)}</a>' for title in shown)
    body = [*first_screen(record), f'<nav class="pages" aria-label="parts">{links}</nav>']
    for title, part in shown.items():
        body += [f'<section><h2 id="{anchor(title)}">{esc(title)}</h2>', *part, "</section>"]
    body += [f'<p class="absent">Not there yet: {"; ".join(missing)}.</p>'] if missing else []
    style = f"<style>{asset('player.css')}</style>" if replays else ""
    name = f"{record.name}: report"
    return page(name, [style, "<main>", *body, "</main>"], ["player.js"] if replays else [])


def first_screen(record: RunRecord) -> list[str]:
    """The head of the page as HTML: title, one paragraph, and the agent's figures beside those of random play."""
    head = record.head
    title = head.title or f"{head.subject or 'An experiment'} {head.aim or head.without_aim or ''}"
    sentences = " ".join(filter(None, (head.asked, head.trained, head.played)))
    named = ("motif_jax", head.task and f"task {head.task}", record.name, head.made)
    return [
        f'<header class="hero{" wide" if head.beside else ""}"><div>'
        f'<p class="eyebrow">{esc(" · ".join(filter(None, named)))}</p>'
        f'<h1>{title.strip()}</h1><p class="lead">{sentences}</p></div>{head.beside or ""}</header>'
    ]


def ran_on(record: RunRecord) -> list[str]:
    """The part on the machine, as HTML: machine, versions, dates, and the whole config."""
    machine, config, made = record.head.machine or {}, record.head.config or {}, record.made
    memory, system = machine.get("memory_gib"), machine.get("system")
    rows = {
        "processor": machine_words(machine),
        "memory": f"{memory} GiB" if memory else "",
        "system": esc(f"{system}, Python {machine.get('python', '')}") if system else "",
        "commit": esc(machine.get("commit", "")),
        "versions": record.versions,
        "dataset made": esc(made.get("collect", "")),
        "reward made": esc(made.get("train_reward", "")),
        "policy made": esc(made.get("train_policy", "")),
        "seed": esc(config.get("seed", "")),
    }
    body = [table(("", ""), [row for row in rows.items() if row[1]], kind="fits")]
    return [*body, folded("the whole config", json.dumps(config, indent=2, sort_keys=True))] if config else body


def anchor(title: str) -> str:
    """The HTML id of a part, by its title."""
    return title.lower().replace(" ", "-")


# ---- a run as its stages have recorded it


class RunRecord(NamedTuple):
    """The contents of one workdir that the report shows."""

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
        return players.own_of(self.players)

    @property
    def chance(self) -> Player | None:
        return players.chance_of(self.players)

    @property
    def evaluated(self) -> Player | None:
        """The evaluation of the run's own policy; by a protocol's rules if there is no other."""
        return next(filter(None, map(players.own_of, (self.players, *self.by_protocol.values()))), None)

    @property
    def versions(self) -> str:
        versions = (self.head.machine or {}).get("versions", {})
        return esc(", ".join(f"{name} {version}" for name, version in versions.items()))


def read_record(path: Path) -> RunRecord:
    """Reads what the stages have written in a workdir."""
    run = Run(path)
    heads = dict(sorted(run.heads().items(), key=lambda item: by_stage(item[0][0])))
    words: dict[str, Any] = {}
    for head in heads.values():
        words |= {name: value for name, value in asdict(head).items() if value is not None}
    made = {stage: head.made for (stage, _), head in heads.items() if head.made}
    rows = run.stage("train_policy", "policy").rows()
    others = players.arranged(run.read_each(SUMMARIES, Player))
    own = others.pop("")
    return RunRecord(path.resolve().name, path, Head(**words), made, rows, own, others)


def by_stage(name: str) -> int:
    """The place of a stage in the order of STAGES."""
    return STAGES.index(name) if name in STAGES else len(STAGES)


# ---- several runs side by side


def of_runs(runs: Mapping[str, RunRecord], home: Path) -> list[str]:
    """The part that compares several runs, by name, this one first, as HTML; `home`: directory of the report."""
    rows = []
    for run, record in runs.items():
        page, head, most = link(record.path, home), record.head, games(record).get("env.max_episode_steps")
        named = f'<a href="{esc(page)}">{esc(run)}</a>' if page else f"<b>{esc(run)}</b>"
        task = noted(esc(head.task or "–"), f"at most {most} steps" if most else "")
        judged = esc(head.goal or "–"), head.judge or "–", head.agreement or "–"
        rows.append([named, task, *judged, amount(head.steps), duration(head.seconds)])
    head_row = ("run", "task", "asked for", "by", "reward agrees with its labels", "steps", "trained for")
    body = [table(head_row, rows, (4, 5, 6))]
    if differ := differences(list(runs.values())):
        listed = "; ".join(f"{name}: {', '.join(values)}" for name, values in differ.items())
        body.append(f'<p class="soft">The games of these runs differ, so compare with care ({esc(listed)}).</p>')
    charts, colours = [], dict(zip(runs, COLOURS * len(runs), strict=False))
    metrics = (metric for record in runs.values() for row in record.rows for metric in row)
    for name, title, note in curves_of(metrics):
        lines = {run: curve(record.rows, name) for run, record in runs.items()}
        lines = {run: points for run, points in lines.items() if any(value for _, value in points)}  # not always zero
        if lines and name not in ALONE:
            note = "each by its own reward" if name == "episode/intrinsic_return" else note
            charts.append(curves(lines, "steps", title=title, note=note, colours=colours))
    if charts:
        body += ["<h3>Training</h3>", f'<div class="charts">{"".join(charts)}</div>']
    named_players = [(run, own) for run, record in runs.items() if (own := record.own)]
    if not differ:
        named_players += [("random play", chance) for record in runs.values() if (chance := record.chance)][:1]
    if len(named_players) > 1:
        body += ["<h3>Evaluation</h3>", '<p class="soft">Means with 95 % bootstrap intervals.</p>']
        body += [players.figures_table(named_players), *players.behaviours(named_players)]
    liked = {run: record.head.likes for run, record in runs.items() if record.head.likes}
    likes = [f"<div><h3>{esc(run)} likes most</h3>{captions}</div>" for run, captions in liked.items()]
    return [*body, f'<div class="pair">{"".join(likes)}</div>'] if likes else body


def link(workdir: Path, home: Path) -> str:
    """The path of a workdir's report relative to another report's directory `home`; "" without one."""
    page, home = (workdir / "report/index.html").resolve(), home.resolve()
    return Path(os.path.relpath(page, home)).as_posix() if page.is_file() and page.parent != home else ""


def games(record: RunRecord) -> dict[str, str]:
    """The settings of the games, and the seed, if they are known."""
    config = record.head.config or {}
    settings = {f"env.{name}": str(value) for name, value in config.get("env", {}).items()}
    if record.head.task:
        settings["env.task"] = record.head.task
    return settings | ({"seed": str(config["seed"])} if "seed" in config else {})


def differences(runs: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Settings of the games, and seeds, that differ between runs, with their values."""
    settings = [games(one) for one in runs]
    values = {name: [one[name] for one in settings if name in one] for one in settings for name in one}
    return {name: list(dict.fromkeys(kinds)) for name, kinds in values.items() if len({*kinds}) > 1}


def by_name(runs: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Runs by the names of their directories, with as many parents as make the names unique."""
    paths = [one.path.resolve().parts for one in runs]
    names: dict[str, RunRecord] = {}
    for one, parts in zip(runs, paths, strict=True):
        ends = (parts[-depth:] for depth in range(1, len(parts)))
        unique = next((end for end in ends if sum(other[-len(end) :] == end for other in paths) == 1), parts)
        names["/".join(unique)] = one
    return names


STAGE = Stage(
    config=ReportConfig,
    sections=("report",),
    check=check,
    is_complete=is_complete,
    run=run,
    writes="--config.report.replays",
    memory="--config.report.replays",
    lock=without_lock,
    loads_jax=lambda config: False,
)
