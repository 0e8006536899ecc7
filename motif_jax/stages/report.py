"""The report: one page about the goal, the learnt reward, the training of the agent, and its evaluation.

`workdir/report/index.html` is self-contained; it links to the workdir's pages about the annotations and the reward.
Each stage has written its own sections when it ended (`run.StageRun.section`); the report arranges them, and adds what
compares several runs. The stage is complete until a section changes. The same sections give the same page, byte for
byte.

An experiment with several seeds has a page about all of them, which links to the page of each run. A figure of a run is
the mean over its evaluated episodes; intervals are over runs with different seeds.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import motif_jax
from motif_jax.config.table import PATHS, Whole, section, value
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages import figures
from motif_jax.pages.blocks import (
    Interval,
    amount,
    asset,
    cell,
    duration,
    esc,
    exact,
    folded,
    machine_words,
    noted,
    page,
    quoted,
    table,
)
from motif_jax.pages.charts import COLOURS, curves, dots, reach
from motif_jax.pages.figures import SUMMARIES, WATCHED, Player, Players, Watched, estimate
from motif_jax.run import SECTIONS, Head, Run
from motif_jax.stages import Experiment, Stage, without_lock
from motif_jax.structs import UserError
from motif_jax.system.runs import PlannedRun

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
    """The workdirs to compare this one with."""
    return [Path(name.strip()) for name in config.report.runs.split(",") if name.strip()]


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
    replays = figures.replay_blocks(played, config.report.replays)
    written = {"Watch it play": replays, "What it ran on": ran_on(record)}
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
    anchors = {title: title.lower().replace(" ", "-") for title in shown}
    links = "".join(f'<a href="#{to}">{esc(title)}</a>' for title, to in anchors.items())
    # The first screen: title, one paragraph, and the agent's figures beside those of random play.
    head = record.head
    title = head.title or f"{head.subject or 'An experiment'} {head.aim or head.without_aim or ''}"
    named = ("motif_jax", head.task and f"task {head.task}", record.name, head.made)
    body = [
        f'<header class="hero{" wide" if head.beside else ""}"><div>'
        f'<p class="eyebrow">{esc(" · ".join(filter(None, named)))}</p><h1>{title.strip()}</h1>'
        f'<p class="lead">{" ".join(filter(None, (head.asked, head.trained, head.played)))}</p>'
        f"</div>{head.beside or ''}</header>",
        f'<nav class="pages" aria-label="parts">{links}</nav>',
    ]
    for title, part in shown.items():
        body += [f'<section><h2 id="{anchors[title]}">{esc(title)}</h2>', *part, "</section>"]
    body += [f'<p class="absent">Not there yet: {"; ".join(missing)}.</p>'] if missing else []
    style = f"<style>{asset('player.css')}</style>" if replays else ""
    name = f"{record.name}: report"
    return page(name, [style, "<main>", *body, "</main>"], ["player.js"] if replays else [])


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


# ---- a run as its stages have recorded it


class RunRecord(NamedTuple):
    """The contents of one workdir that the report shows."""

    name: str
    path: Path
    head: Head  # of all stages together
    made: dict[str, str]  # dates by stage
    rows: list[dict[str, Any]]  # metrics of training
    players: list[Player]  # by one protocol's rules, at first the workdir's own; its policy first, random play last
    by_protocol: Players  # all of them

    @property
    def own(self) -> Player | None:
        """The evaluation of the workdir's policy, at its latest evaluated checkpoint."""
        return figures.own_of(self.players)

    @property
    def chance(self) -> Player | None:
        return figures.chance_of(self.players)

    @property
    def evaluated(self) -> Player | None:
        """The evaluation of the run's own policy; by a protocol's rules if there is no other."""
        return next(filter(None, map(figures.own_of, self.by_protocol.values())), None)

    @property
    def versions(self) -> str:
        versions = (self.head.machine or {}).get("versions", {})
        return esc(", ".join(f"{name} {version}" for name, version in versions.items()))


def read_record(path: Path) -> RunRecord:
    """Reads what the stages have written in a workdir."""
    run = Run(path)
    heads = dict(sorted(run.heads().items(), key=lambda item: by_stage(item[0][0])))
    said: dict[str, Any] = {}
    for head in heads.values():
        said |= {name: value for name, value in asdict(head).items() if value is not None}
    made = {stage: head.made for (stage, _), head in heads.items() if head.made}
    rows = run.stage("train_policy", "policy").rows()
    players = figures.arranged(run.read_each(SUMMARIES, Player))
    return RunRecord(path.resolve().name, path, Head(**said), made, rows, players[""], players)


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
    for name, title, note in figures.curves_of(metrics):
        lines = {run: figures.curve(record.rows, name) for run, record in runs.items()}
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
        body += [figures.figures_table(named_players), *figures.behaviours(named_players)]
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


# ---- the page about several seeds

CHANCE = "random play"
FEW = 5  # seeds: a claim about learning needs at least this many
Scores = dict[str, dict[str, np.ndarray]]  # by name of a player, by figure: a value per seed. [S] each


class Variant(NamedTuple):
    """Runs with the same values and different seeds."""

    name: str
    seeds: list[int]
    runs: dict[int, RunRecord]  # runs with results, by seed


def write_page_over_seeds(runs: Sequence[PlannedRun], workdir: Path, arguments: Sequence[str] = ()) -> Path:
    """Writes the page about all runs, which `arguments` have run, and prints their figures; returns the file."""
    file = workdir / "report/index.html"
    variants = gather(runs, workdir)
    if not any(variant.runs for variant in variants):
        raise UserError(f"none of the {len(runs)} runs in {str(workdir)!r} has anything to report yet (--workdir)")
    blocks = body(variants, workdir, file.parent, arguments)
    write_whole(file, page(f"{workdir.resolve().name}: {len(runs)} runs", ["<main>", *blocks, "</main>"]))
    for rules, players in by_rules(variants):
        for name, scores in columns(players).items():
            means = (f"{figure} {estimate(values).spelt}" for figure, values in scores.items())
            print_line(f"{name}{rules}: {'; '.join(means)}")
    return file


def body(variants: Sequence[Variant], workdir: Path, home: Path, arguments: Sequence[str]) -> list[str]:
    """The page, as HTML."""
    seeds = max(len(variant.runs) for variant in variants)
    lines = [
        f'<p class="eyebrow">motif_jax · {esc(workdir.resolve().name)}</p><h1>{seeds} seeds'
        f"{f', {len(variants)} variants' if len(variants) > 1 else ''}</h1>",
        '<p class="lead">A dot is one run: the mean over its evaluated episodes. The mark is the mean over runs, the '
        "shade its 95 % interval over seeds (bootstrap).</p>",
    ]
    parts = []
    for rules, players in by_rules(variants):
        for name, every, runs in players:
            if missing := [str(seed) for seed in sorted(every) if seed not in runs or runs[seed].own is None]:
                who = esc((f" of {name}" if name else "") + rules)
                left_out = f"Not evaluated yet{who}: seed {', '.join(missing)}. They are left out."
                lines.append(f'<p class="absent">{left_out}</p>')
        scores, constant = without_constant(columns(players))
        if scores or constant:
            over = table_over_seeds(scores) if scores else ""
            alike = (f"{figures.words(name)[0]} {exact(constant[name])}" for name in figures.in_order(constant))
            same = ", ".join(alike)
            note = f'<p class="soft">The same in every run: {esc(same)}.</p>' if same else ""
            parts.append((f"Figures over seeds{esc(rules)}", [over, note]))
        if len(scores) > 1:
            parts.append((f"Is it better{esc(rules)}?", [comparison(scores, has_one_reward(players))]))
    fewest = min(sum(run.evaluated is not None for run in variant.runs.values()) for variant in variants)
    if fewest < FEW:
        needs = f"A claim about learning needs at least {FEW} evaluated seeds; these are {fewest}."
        lines.append(f'<p class="absent">{needs}</p>')
    if charts := training(variants):
        parts.append(("Training", [f'<div class="charts">{"".join(charts)}</div>']))
    parts += [("The runs", [runs_table(variants, home)]), ("How it was made", [made_by(variants, arguments)])]
    for title, blocks in parts:
        lines += [f"<section><h2>{title}</h2>", *blocks, "</section>"]
    return lines


def made_by(variants: Sequence[Variant], arguments: Sequence[str]) -> str:
    """A table of task, config, commit, machine and command, as HTML."""
    runs = [one for variant in variants for one in variant.runs.values()]
    tasks = [one.evaluated.task if one.evaluated else one.head.task or "" for one in runs]
    command = shlex.join(["python", "-m", "motif_jax.launch", *arguments]) if arguments else ""
    configs = [text for before, text in itertools.pairwise(arguments) if before in ("--config", "-config")]
    configs += [text.partition("=")[2] for text in arguments if re.match("--?config=", text)]
    rows = [
        ("task", [esc(task) for task in tasks]),
        ("config", [esc(text) for text in configs]),
        ("commit", [esc((one.head.machine or {}).get("commit", "")) for one in runs]),
        ("versions", [one.versions for one in runs]),
        ("machine", [machine_words(one.head.machine or {}) for one in runs]),
        ("command", [quoted(command)] if command else []),
    ]
    filled = [(name, "; ".join(dict.fromkeys(filter(None, values)))) for name, values in rows]
    return table(("", ""), [row for row in filled if row[1]], kind="fits")


def table_over_seeds(variants: Scores) -> str:
    """A row per figure: mean, interval, interquartile mean, and every seed as a dot."""
    rows, sheet = [], []
    names = figures.in_order(figure for scores in variants.values() for figure in scores)
    for figure in names:
        values = {name: scores[figure] for name, scores in variants.items() if figure in scores}
        intervals = {name: estimate(array) for name, array in values.items()}
        ends = [Interval(float(end)) for array in values.values() for end in (array.min(), array.max())]
        low, high = reach([*intervals.values(), *ends])
        what, note = figures.words(figure)
        side = figures.better(figure, names)
        cells = [noted(esc(what), "; ".join(filter(None, (note, f"{side} is better" if side else ""))))]
        for number, name in enumerate(variants):
            if name not in values:
                cells.append(cell(None))
                continue
            interval, middle = intervals[name], figures.interquartile_mean(values[name])
            sheet.append((what, name, interval.mean, interval.low, interval.high, middle, len(values[name]), side))
            scale = dots(values[name].tolist(), interval, low, high, COLOURS[number % len(COLOURS)])
            cells.append(cell(interval, f" · IQM {exact(middle)}") + scale)
        rows.append(cells)
    head = ("figure", "of", "mean", "low", "high", "interquartile mean", "seeds", "better")
    return table(("", *variants), rows, kind="figures", sheet=(head, sheet))


def comparison(variants: Scores, one_reward: bool) -> str:
    """Each variant against random play, and the first one; learnt returns as well if they are of `one_reward`."""
    names = list(variants)
    pairs = [(name, CHANCE) for name in names if CHANCE in variants and name != CHANCE]
    pairs += [(name, names[0]) for name in names[1:] if name != CHANCE]
    measured = {figure for scores in variants.values() for figure in scores}
    rows = []
    for ours, theirs in pairs:
        shared = [figure for figure in variants[ours] if figure in variants[theirs]]
        for figure in (one for one in shared if one != "intrinsic_return" or one_reward):
            first, second = variants[ours][figure], variants[theirs][figure]
            side, needed = figures.better(figure, measured), figures.seeds_needed(first, second)
            sign = -1.0 if side == "lower" else 1.0
            rows.append([
                f"<b>{esc(ours)}</b> against {esc(theirs)}", esc(figures.words(figure)[0]), side or "not known",
                f"{first.mean() - second.mean():+.2f}", figures.improvement(sign * first, sign * second).spelt,
                "–" if needed is None else str(needed),
            ])  # fmt: skip
    return (
        '<p class="soft">The probability that a run with a new seed is better (higher, if the better side is not '
        "known; one half: no difference), and the number of seeds of each that shows a difference of this size four "
        "times out of five.</p>"
        + table(("", "figure", "better", "difference", "probability of improvement", "seeds needed"), rows, (3, 4, 5))
    )


def training(variants: Sequence[Variant]) -> list[str]:
    """Curves of training: the mean over the seeds of each variant, with its interval."""
    charts = []
    runs = [one for variant in variants for one in variant.runs.values()]
    for name, title, note in figures.curves_of(metric for one in runs for row in one.rows for metric in row):
        lines, bands = {}, {}
        for variant in variants:
            label = variant.name or "mean over seeds"
            drawn = [figures.curve(one.rows, name) for one in variant.runs.values()]
            if over := figures.band([points for points in drawn if points]):
                lines[label], bands[label] = over
        if len({value for points in lines.values() for _, value in points}) > 1:
            charts.append(curves(lines, "steps", title=title, note=note, bands=bands))
    return charts


def runs_table(variants: Sequence[Variant], home: Path) -> str:
    """All runs with links to their own pages; as CSV also with the figures of each."""
    rows, sheet = [], []
    runs = [(variant.name, seed, one) for variant in variants for seed, one in sorted(variant.runs.items())]
    shown = figures.in_order(figure for _, _, one in runs if one.evaluated for figure in one.evaluated.figures)
    for name, seed, one in runs:
        target, title = link(one.path, home), f"{name} seed {seed}".strip()
        named = f'<a href="{esc(target)}">{esc(title)}</a>' if target else esc(title)
        done, own = one.head, one.evaluated.figures if one.evaluated else {}
        episodes = one.evaluated.episodes if one.evaluated else None
        rows.append([named, amount(done.steps), duration(done.seconds), "–" if episodes is None else f"{episodes:,}"])
        means = [interval.mean if (interval := own.get(figure)) else None for figure in shown]
        sheet.append((name, seed, done.steps, done.seconds, episodes, *means))
    head = ("variant", "seed", "steps", "seconds", "episodes", *(figures.words(figure)[0] for figure in shown))
    names = ("run", "steps", "trained for", "episodes evaluated")
    return table(names, rows, (1, 2, 3), kind="fits", sheet=(head, sheet))


def gather(runs: Sequence[PlannedRun], workdir: Path) -> list[Variant]:
    """Reads the results of all runs and groups them by variant."""
    variants: dict[str, Variant] = {}
    for run in runs:
        variant = variants.setdefault(run.variant, Variant(run.variant, [], {}))
        variant.seeds.append(run.seed)
        one = read_record(workdir / run.folder)
        if one.rows or one.evaluated or one.head.asked:
            variant.runs[run.seed] = one
    return list(variants.values())


def by_rules(variants: Sequence[Variant]) -> list[tuple[str, list[Variant]]]:
    """The variants as each protocol evaluated them, first by the workdirs' own rules, with the end of its titles."""
    runs = [one for variant in variants for one in variant.runs.values()]
    own = [""] if any(one.players for one in runs) else []
    evaluations = []
    for protocol in dict.fromkeys([*own, *(name for one in runs for name in one.by_protocol if name)]) or [""]:
        played = []
        for variant in variants:
            ran = variant.runs.items()
            by_seed = {seed: run._replace(players=run.by_protocol.get(protocol, [])) for seed, run in ran}
            played.append(variant._replace(runs=by_seed))
        rules = next((one.rules for each in played for run in each.runs.values() for one in run.players), "")
        evaluations.append((f", {rules}" if rules else "", played))
    return evaluations


def columns(variants: Sequence[Variant]) -> Scores:
    """The figures of each variant's policy and of random play: by name, by figure, a value per seed. [S] each"""
    scores_by_name: Scores = {}
    for variant in variants:
        if decoded := by_decoding(variant):
            scores_by_name |= decoded
        else:
            scores_by_name[variant.name or "the agent"] = scores_of([one.own for one in variant.runs.values()])
    runs = [(seed, one) for variant in variants for seed, one in variant.runs.items() if one.chance]
    if not differences([one for _, one in runs]).keys() - {"seed"}:  # then variants repeat the games of random play
        scores_by_name[CHANCE] = scores_of([*{seed: one.chance for seed, one in runs}.values()])
        if not has_one_reward(variants):
            scores_by_name[CHANCE].pop("intrinsic_return", None)
    return {name: scores for name, scores in scores_by_name.items() if scores}


def has_one_reward(variants: Sequence[Variant]) -> bool:
    """Whether each seed has the same learnt reward in all variants."""
    runs = [(seed, run) for variant in variants for seed, run in variant.runs.items()]
    players = [(seed, player) for seed, run in runs for player in (run.own, run.chance) if player]
    return len({(seed, player.reward) for seed, player in players}) == len({seed for seed, _ in players})


def by_decoding(variant: Variant) -> Scores:
    """The figures of each decoding of a policy that writes, without values first, and of scripted players.

    {} if the policies of these runs do not write. Players that some runs did not evaluate are left out.
    """

    def called(player: Player) -> str:
        return f"beta {player.beta:g}, {player.kind}" if player.decoding else player.name

    runs = list(variant.runs.values())
    every = [one for run in runs for one in run.players]
    own = [one for one in every if one.decoding and one.path == "."]
    own.sort(key=lambda one: (one.kind != "sample", one.kind, one.beta))
    scripted = sorted({one.name for one in every if own and not one.path} - {"random"})
    before = f"{variant.name}: " if variant.name else ""
    players_by_name = {
        f"{before}{name}": [next((one for one in run.players if called(one) == name), None) for run in runs]
        for name in (*map(called, own), *scripted)
    }
    return {name: scores_of(players) for name, players in players_by_name.items() if None not in players}


def scores_of(players: Sequence[Player | None]) -> dict[str, np.ndarray]:
    """The figures that all of these players have, a value per player. [S] each"""
    measured = [player.figures for player in players if player]
    return {
        name: np.array([interval.mean for one in measured if (interval := one[name])])
        for name in (measured[0] if measured else ())
        if all(one.get(name) for one in measured)
    }


def without_constant(variants: Scores) -> tuple[Scores, dict[str, float]]:
    """The figures that differ between runs, by name, as those of a single run do; and the value of each other one."""
    values: dict[str, list[float]] = {}
    for figure, array in (item for scores in variants.values() for item in scores.items()):
        values.setdefault(figure, []).extend(array.tolist())
    constant = {figure: one[0] for figure, one in values.items() if len(set(one)) == 1 < len(one)}
    kept = {
        name: {figure: array for figure, array in scores.items() if figure not in constant}
        for name, scores in variants.items()
    }
    return {name: scores for name, scores in kept.items() if scores}, constant


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
