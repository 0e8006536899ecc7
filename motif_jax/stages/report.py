"""The report: one page about the goal, the learnt reward, the training of the agent, and its evaluation.

`workdir/report/index.html` is self-contained; it links to the workdir's pages about the annotations and the reward.
Each stage has written its own sections (`run.StageRun.section`) and facts; the report arranges them, and adds what
compares several runs. The same sections give the same page, byte for byte, and so the stage is complete while the page
is what it would write.

An experiment with several seeds has a page about all of them, which links to the page of each run. A figure of a run is
the mean over its evaluated episodes; intervals are over runs with different seeds.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import PATHS, Whole, section, value
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages import figures
from motif_jax.pages.blocks import (
    Block,
    Box,
    Contents,
    Folded,
    Heading,
    Hero,
    Interval,
    Link,
    Paragraph,
    Part,
    Span,
    Table,
    Text,
    amount,
    cell,
    code,
    duration,
    exact,
    joined,
    machine_words,
    noted,
    page,
)
from motif_jax.pages.charts import COLOURS, Curves, Track, reach
from motif_jax.pages.figures import WATCHED, Player, Players, Watched, estimate
from motif_jax.pages.players import read_players
from motif_jax.run import Facts, Run
from motif_jax.stages import Experiment, Stage, without_lock
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits
from motif_jax.system.runs import PlannedRun

FLAG = "--config.report.runs"
EARLIER = "sections"  # directory of a workdir's sections, as HTML, up to version 0.2.0
PARTS = {  # titles of sections in the order of the page, and the stages that are expected to write them
    "Watch it play": "evaluate", "Runs side by side": "", "Decoding with values": "", "Token by token": "",
    "Evaluation": "evaluate", "Training the agent": "train_policy", "The judge": "", "The reward": "train_reward",
    "Preferences": "annotate", "Learning from transcripts": "train_values", "The transcripts": "collect",
    "The dataset": "collect", "What it ran on": "",
}  # fmt: skip
OTHERS = ""  # stages of plugins
STAGES = (  # in the order of their figures on the first screen; of two equal titles, the later stage's counts
    "collect", "check_judge", "annotate", OTHERS, "train_reward", "train_language", "train_values", "evaluate",
    "train_policy",
)  # fmt: skip
AGENT = ("train_policy", "evaluate")  # their sentences, after those of the last of the other stages
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


def check(config: ReportConfig, workdir: Path) -> list[Need]:
    """The other workdirs are needed; every value can work."""
    return [Need(functools.partial(check_run, path), path) for path in other_runs(config)]


def check_run(path: Path) -> None:
    """Raises UserError for another workdir that does not exist."""
    if not os.path.isdir(path):
        raise UserError(f"there is no workdir {str(path)!r} ({FLAG})")


def is_complete(config: ReportConfig, workdir: Path) -> bool:
    """Whether the page exists and is up to date."""
    file = workdir / "report/index.html"
    return file.is_file() and file.read_bytes() == compose(config, workdir).encode("utf-8", "replace")


def run(config: ReportConfig, workdir: Path) -> None:
    """Writes the page to `workdir/report`."""
    for path in (workdir, *other_runs(config)):
        if (path / EARLIER).exists():
            print_line(
                f"report: {str(path / EARLIER)!r} is of an earlier version of motif_jax, so the page lacks sections of "
                "stages that have not run since"
            )
        if not Run(path).facts():
            todo = "report yet: run --stage=collect first (--workdir)" if path == workdir else f"compare with ({FLAG})"
            raise UserError(f"there is nothing in {str(path)!r} to {todo}")
    file = workdir / "report/index.html"
    write_whole(file, compose(config, workdir))
    print_line(f"report: {file}")


def compose(config: ReportConfig, workdir: Path) -> str:
    """The whole page as HTML."""
    others = [path for path in other_runs(config) if path.resolve() != workdir.resolve()]
    runs = [read_record(path) for path in (workdir, *others)]
    record = runs[0]
    watched = Run(record.path).read_each(f"evaluate/*/{WATCHED}.json", Watched)
    played = [(one.path == ".", watched[one.name]) for one in record.players[""] if one.name in watched]
    replays = figures.replay_blocks(played, config.report.replays)
    sections = sorted(Run(record.path).sections(), key=lambda one: by_stage(one.stage))
    titles = [*PARTS]
    for one in sections:
        if one.title not in titles:
            titles.insert(titles.index(one.after) + 1 if one.after in titles else len(titles) - 1, one.title)
    parts: dict[str, list[Block]] = {title: [] for title in titles}
    parts["Watch it play"], parts["What it ran on"] = replays, ran_on(record)
    if len(runs) > 1:
        parts["Runs side by side"] = side_by_side(by_name(runs), workdir / "report")
    for one in sections:
        parts[one.title] += one.blocks
    in_words = parts["The transcripts"] or config.collect["transcripts"] > 0  # then collect does not make pairs
    optional = "The dataset" if in_words else "The transcripts"
    missing = [
        f"{title} (--stage={stage})"
        for title, stage in reversed(PARTS.items())
        if stage in config.stages and not parts[title] and title != optional
    ]
    # The first screen: title, one paragraph, and the agent's figures beside those of random play.
    facts = record.facts
    named = ("motif_jax", facts.task and f"task {facts.task}", record.name, facts.made)
    hero = Hero(" · ".join(filter(None, named)), facts.title or "An experiment", facts.lead or "", facts.beside)
    shown = [title for title, blocks in parts.items() if blocks]
    body = [hero, Contents(shown), *(Part(title, parts[title], linked=True) for title in shown)]
    body += [Paragraph(f"Not there yet: {'; '.join(missing)}.", "absent")] if missing else []
    return page(f"{record.name}: report", body, main=True, player=bool(replays))


def ran_on(record: RunRecord) -> list[Block]:
    """The part on the machine: machine, versions, dates, and the whole config."""
    machine, config, made = record.machine, record.facts.config or {}, record.made
    memory, system = machine.get("memory_gib"), machine.get("system")
    rows = {
        "processor": machine_words(machine),
        "memory": f"{memory} GiB" if memory else "",
        "system": f"{system}, Python {machine.get('python', '')}" if system else "",
        "commit": machine.get("commit", ""),
        "versions": record.versions,
        "dataset made": made.get("collect", ""),
        "reward made": made.get("train_reward", ""),
        "policy made": made.get("train_policy", ""),
        "seed": str(config.get("seed", "")),
    }
    body: list[Block] = [Table(("", ""), [row for row in rows.items() if row[1]], kind="fits")]
    return [*body, Folded("the whole config", json.dumps(config, indent=2, sort_keys=True))] if config else body


# ---- a run as its stages have recorded it


class RunRecord(NamedTuple):
    """The contents of one workdir that the report shows."""

    path: Path
    facts: Facts  # of all stages together
    made: dict[str, str]  # dates by stage
    rows: list[dict[str, Any]]  # metrics of training
    players: Players  # by protocol; "": by the workdir's own rules

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def own(self, protocol: str = "") -> Player | None:
        """The evaluation of the workdir's policy, at its latest evaluated checkpoint."""
        return figures.own_of(self.players.get(protocol, []))

    def chance(self, protocol: str = "") -> Player | None:
        """The evaluation of random play."""
        return figures.chance_of(self.players.get(protocol, []))

    @property
    def meanings(self) -> figures.Meanings:
        """What its world says about its figures."""
        every = (one for players in self.players.values() for one in figures.meanings_of(players))
        return tuple(dict.fromkeys([*every, *(self.facts.meanings or ())]))

    @property
    def evaluated(self) -> Player | None:
        """The evaluation of the run's own policy; by a protocol's rules if there is no other."""
        return next(filter(None, map(self.own, self.players)), None)

    @property
    def machine(self) -> Mapping[str, Any]:
        return self.facts.machine or {}

    @property
    def versions(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.machine.get("versions", {}).items())


def read_record(path: Path) -> RunRecord:
    """Reads what the stages have written in a workdir."""
    run, said, made, leads = Run(path), dict[str, Any](), dict[str, str](), dict[str, Text]()
    for (stage, _), facts in sorted(run.facts().items(), key=lambda item: by_stage(item[0][0])):
        said |= {one.name: value for one in fields(facts) if (value := getattr(facts, one.name)) is not None}
        made |= {stage: facts.made} if facts.made else {}
        leads |= {stage if stage in AGENT else OTHERS: facts.lead} if facts.lead else {}
    said["lead"] = joined([leads[of] for of in (OTHERS, *AGENT) if of in leads], " ")
    rows = run.stage("train_policy", "policy").rows()
    return RunRecord(path, Facts(**said), made, rows, figures.arranged(read_players(path)))


def by_stage(name: str) -> int:
    """The place of a stage in the order of STAGES."""
    return STAGES.index(name if name in STAGES else OTHERS)


# ---- several runs side by side


def side_by_side(runs: Mapping[str, RunRecord], home: Path) -> list[Block]:
    """The part that compares several runs, by name, this one first; `home`: directory of the report."""
    rows: list[list[Text]] = []
    for run, record in runs.items():
        facts, most = record.facts, games(record).get("env.max_episode_steps")
        task = noted(facts.task or "–", f"at most {most} steps" if most else "")
        judged = facts.goal or "–", (facts.judge and facts.judge.words) or "–", facts.agreement or "–"
        named = linked(run, record.path, home) or Span(run)
        rows.append([named, task, *judged, amount(facts.steps), duration(facts.seconds)])
    head_row = ("run", "task", "asked for", "by", "reward agrees with its labels", "steps", "trained for")
    body: list[Block] = [Table(head_row, rows, (4, 5, 6))]
    if differ := differences(runs.values()):
        listed = "; ".join(f"{name}: {', '.join(values)}" for name, values in differ.items())
        body.append(Paragraph(f"The games of these runs differ, so compare with care ({listed}).", "soft"))
    charts, colours = [], dict(zip(runs, COLOURS * len(runs), strict=False))
    for name, title, note in curves_of(runs.values()):
        lines = {run: figures.curve(record.rows, name) for run, record in runs.items()}
        lines = {run: points for run, points in lines.items() if any(value for _, value in points)}  # not always zero
        if lines and name not in ALONE:
            note = "each by its own reward" if name == "episode/intrinsic_return" else note
            charts.append(Curves(lines, "steps", title=title, note=note, colours=colours))
    if charts:
        body += [Heading("Training"), Box(charts, "charts")]
    named_players = [(run, own) for run, record in runs.items() if (own := record.own())]
    if not differ:
        named_players += [("random play", chance) for record in runs.values() if (chance := record.chance())][:1]
    if len(named_players) > 1:
        body += [Heading("Evaluation"), Paragraph("Means with 95 % bootstrap intervals.", "soft")]
        body += [figures.figures_table(named_players), *figures.behaviours(named_players)]
    liked = {run: record.facts.likes for run, record in runs.items() if record.facts.likes}
    likes = [Box([Heading(f"{run} likes most"), captions]) for run, captions in liked.items()]
    return [*body, Box(likes, "pair")] if likes else body


def linked(name: str, workdir: Path, home: Path) -> Link | None:
    """A run's name with a link from the directory `home` of a report to the run's own, if it has one elsewhere."""
    file, home = (workdir / "report/index.html").resolve(), home.resolve()
    if not file.is_file() or file.parent == home:
        return None
    return Link(name, Path(os.path.relpath(file, home)).as_posix())


def curves_of(runs: Iterable[RunRecord]) -> list[figures.Curve]:
    """The curves of training that these runs have."""
    every = [*runs]
    metrics = {metric: None for one in every for row in one.rows for metric in row}
    return figures.curves_of(metrics, meanings_of(every))


def meanings_of(runs: Iterable[RunRecord]) -> figures.Meanings:
    """What the worlds of these runs say about their figures."""
    return tuple(dict.fromkeys(one for run in runs for one in run.meanings))


def games(record: RunRecord) -> dict[str, str]:
    """The settings of the games, and the seed, if they are known."""
    config = record.facts.config or {}
    settings = {f"env.{name}": str(value) for name, value in config.get("env", {}).items()}
    if record.facts.task:
        settings["env.task"] = record.facts.task
    return settings | ({"seed": str(config["seed"])} if "seed" in config else {})


def differences(runs: Iterable[RunRecord]) -> dict[str, list[str]]:
    """Settings of the games, and seeds, that differ between runs, with their values."""
    values: dict[str, dict[str, None]] = {}
    for name, setting in (item for one in runs for item in games(one).items()):
        values.setdefault(name, {})[setting] = None
    return {name: list(settings) for name, settings in values.items() if len(settings) > 1}


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
Variants = dict[str, dict[int, RunRecord]]  # runs with results, by their swept values and their seed
Scores = dict[str, dict[str, np.ndarray]]  # by name of a player, by figure: a value per seed. [S] each


def write_page_over_seeds(runs: Sequence[PlannedRun], workdir: Path, arguments: Sequence[str] = ()) -> Path:
    """Writes the page about all runs, which `arguments` have run, and prints their figures; returns the file."""
    file, variants = workdir / "report/index.html", gather(runs, workdir)
    if not any(variants.values()):
        raise UserError(f"none of the {len(runs)} runs in {str(workdir)!r} has anything to report yet (--workdir)")
    seeds, of_variants = max(map(len, variants.values())), f", {len(variants)} variants" * (len(variants) > 1)
    explained = (
        "A dot is one run: the mean over its evaluated episodes. The mark is the mean over runs, the shade its 95 % "
        "interval over seeds (bootstrap)."
    )
    lines = [
        Paragraph(f"motif_jax · {workdir.resolve().name}", "eyebrow"),
        Heading(f"{seeds} seeds{of_variants}", 1),
        Paragraph(explained, "lead"),
    ]
    parts, said, meanings = list[Block](), [], meanings_of(run for _, run in with_results(variants))
    for protocol, rules in protocols_of(variants).items():
        for name, ran in variants.items():
            seeds_of = sorted(run.seed for run in runs if run.variant == name)
            if missing := [str(seed) for seed in seeds_of if seed not in ran or not ran[seed].own(protocol)]:
                who = f" of {name}{rules}" if name else rules
                left_out = f"Not evaluated yet{who}: seed {', '.join(missing)}. They are left out."
                lines.append(Paragraph(left_out, "absent"))
        every = columns(variants, protocol)
        parts += parts_over_seeds(every, meanings, rules, has_one_reward(variants, protocol))
        for name, scores in every.items():
            means = (f"{figure} {estimate(values).spelt}" for figure, values in scores.items())
            said.append(f"{name}{rules}: {'; '.join(means)}")
    fewest = min(sum(run.evaluated is not None for run in ran.values()) for ran in variants.values())
    if fewest < FEW:
        needs = f"A claim about learning needs at least {FEW} evaluated seeds; these are {fewest}."
        lines.append(Paragraph(needs, "absent"))
    if charts := training(variants):
        parts.append(Part("Training", [Box(charts, "charts")]))
    parts.append(Part("The runs", [runs_table(variants, file.parent)]))
    parts.append(Part("How it was made", [made_by(variants, arguments)]))
    write_whole(file, page(f"{workdir.resolve().name}: {len(runs)} runs", [*lines, *parts], main=True))
    for line in said:
        print_line(line)
    return file


def gather(runs: Sequence[PlannedRun], workdir: Path) -> Variants:
    """Reads the results of all runs."""
    variants: Variants = {run.variant: {} for run in runs}
    for run in runs:
        one = read_record(workdir / run.folder)
        if one.rows or one.evaluated or one.facts.lead:
            variants[run.variant][run.seed] = one
    return variants


def with_results(variants: Variants) -> list[tuple[int, RunRecord]]:
    """All runs with their seeds."""
    return [pair for runs in variants.values() for pair in runs.items()]


def protocols_of(variants: Variants) -> dict[str, str]:
    """The protocols by which runs were evaluated, first the workdirs' own rules; and the end of the titles of each."""
    players = [one for _, run in with_results(variants) for played in run.players.values() for one in played]
    titles: dict[str, str] = {}
    for one in sorted(players, key=lambda one: one.protocol != ""):
        titles.setdefault(one.protocol, f", {one.rules}" if one.rules else "")
    return titles or {"": ""}


# ---- figures over seeds


def columns(variants: Variants, protocol: str = "") -> Scores:
    """The figures of each variant's policy and of random play, by a protocol's rules."""
    scores_by_name: Scores = {}
    for name, runs in variants.items():
        decoded = by_decoding(name, [run.players.get(protocol, []) for run in runs.values()])
        own = {name or "the agent": [run.own(protocol) for run in runs.values()]}
        scores_by_name |= {who: figures.scores_of(players) for who, players in (decoded or own).items()}
    ran = [(seed, run) for seed, run in with_results(variants) if run.chance(protocol)]
    if not differences(run for _, run in ran).keys() - {"seed"}:  # then variants repeat the games of random play
        scores_by_name[CHANCE] = figures.scores_of([*{seed: run.chance(protocol) for seed, run in ran}.values()])
        if not has_one_reward(variants, protocol):
            scores_by_name[CHANCE].pop("intrinsic_return", None)
    return {name: scores for name, scores in scores_by_name.items() if scores}


def by_decoding(variant: str, runs: Sequence[Sequence[Player]]) -> dict[str, list[Player | None]]:
    """The players of each run by decoding of a policy that writes, without values first, and scripted players.

    {} if the policies of these runs do not write. Players that some runs did not evaluate are left out.
    """

    def called(player: Player) -> str:
        return f"beta {player.beta:g}, {player.kind}" if player.decoding else player.name

    every = [player for players in runs for player in players]
    own = [one for one in every if one.decoding and one.path == "."]
    own.sort(key=lambda one: (one.kind != "sample", one.kind, one.beta))
    scripted = sorted({one.name for one in every if own and not one.path} - {"random"})
    by_name = [{called(one): one for one in reversed(players)} for players in runs]
    before = f"{variant}: " if variant else ""
    return {
        f"{before}{name}": [players[name] for players in by_name]
        for name in (*map(called, own), *scripted)
        if all(name in players for players in by_name)
    }


def has_one_reward(variants: Variants, protocol: str = "") -> bool:
    """Whether each seed has the same learnt reward in all variants."""
    played = [(seed, run.own(protocol), run.chance(protocol)) for seed, run in with_results(variants)]
    rewards = {(seed, player.reward) for seed, *players in played for player in players if player}
    return len(rewards) == len({seed for seed, _ in rewards})


def parts_over_seeds(every: Scores, meanings: figures.Meanings, rules: str, one_reward: bool) -> list[Part]:
    """The parts with figures and comparisons, of one protocol. `meanings`: of the worlds' figures.

    Figures that differ between runs, as those of a single run do, are in the tables; the others in a sentence.
    """
    constant: dict[str, float] = {}
    for figure in {figure: None for scores in every.values() for figure in scores}:
        values = np.concatenate([scores[figure] for scores in every.values() if figure in scores])
        if len(values) > 1 and (values == values[0]).all():
            constant[figure] = values[0]
    kept = {name: {f: values for f, values in scores.items() if f not in constant} for name, scores in every.items()}
    scores, parts = {name: of for name, of in kept.items() if of}, list[Part]()
    if every:
        names = figures.in_order(constant, meanings)
        same = ", ".join(f"{figures.words(name, meanings)[0]} {exact(constant[name])}" for name in names)
        body: list[Block] = [table_over_seeds(scores, meanings)] if scores else []
        body += [Paragraph(f"The same in every run: {same}.", "soft")] if same else []
        parts.append(Part(f"Figures over seeds{rules}", body))
    if len(scores) > 1:
        parts.append(Part(f"Is it better{rules}?", comparison(scores, meanings, one_reward)))
    return parts


def table_over_seeds(variants: Scores, meanings: figures.Meanings) -> Table:
    """A row per figure: mean, interval, interquartile mean, and every seed as a dot."""
    rows, sheet = [], []
    names = figures.in_order((figure for scores in variants.values() for figure in scores), meanings)
    for figure in names:
        values = {name: scores[figure] for name, scores in variants.items() if figure in scores}
        intervals = {name: estimate(array) for name, array in values.items()}
        ends = [Interval(float(end)) for array in values.values() for end in (array.min(), array.max())]
        low, high = reach([*intervals.values(), *ends])
        what, note = figures.words(figure, meanings)
        side = figures.better(figure, names, meanings)
        cells = [noted(what, "; ".join(filter(None, (note, f"{side} is better" if side else ""))))]
        for name, colour in zip(variants, itertools.cycle(COLOURS), strict=False):
            if name not in values:
                cells.append(cell(None))
                continue
            interval, middle = intervals[name], figures.interquartile_mean(values[name])
            sheet.append((what, name, interval.mean, interval.low, interval.high, middle, len(values[name]), side))
            scale = Track(interval, low, high, colour, values[name].tolist())
            cells.append((cell(interval, f" · IQM {exact(middle)}"), scale))
        rows.append(cells)
    head = ("figure", "of", "mean", "low", "high", "interquartile mean", "seeds", "better")
    return Table(("", *variants), rows, kind="figures", sheet=(head, sheet))


def comparison(variants: Scores, meanings: figures.Meanings, one_reward: bool) -> list[Block]:
    """Each variant against random play, and the first one; learnt returns as well if they are of `one_reward`."""
    names = list(variants)
    pairs = [(name, CHANCE) for name in names if CHANCE in variants and name != CHANCE]
    pairs += [(name, names[0]) for name in names[1:] if name != CHANCE]
    measured = {figure for scores in variants.values() for figure in scores}
    rows = []
    for ours, theirs in pairs:
        for figure, first in variants[ours].items():
            if figure not in variants[theirs] or (figure == "intrinsic_return" and not one_reward):
                continue
            title, _ = figures.words(figure, meanings)
            second, side = variants[theirs][figure], figures.better(figure, measured, meanings)
            sign, needed = -1.0 if side == "lower" else 1.0, figures.seeds_needed(first, second)
            rows.append([
                (Span(ours), f" against {theirs}"), title, side or "not known",
                f"{first.mean() - second.mean():+.2f}", figures.improvement(sign * first, sign * second).spelt,
                "–" if needed is None else str(needed),
            ])  # fmt: skip
    explained = (
        "The probability that a run with a new seed is better (higher, if the better side is not known; one half: no "
        "difference), and the number of seeds of each that shows a difference of this size four times out of five."
    )
    head = ("", "figure", "better", "difference", "probability of improvement", "seeds needed")
    return [Paragraph(explained, "soft"), Table(head, rows, (3, 4, 5))]


# ---- the other parts of the page


def training(variants: Variants) -> list[Block]:
    """Curves of training: the mean over the seeds of each variant, with its interval."""
    charts = list[Block]()
    for name, title, note in curves_of(run for _, run in with_results(variants)):
        lines, bands = {}, {}
        for variant, runs in variants.items():
            label = variant or "mean over seeds"
            if over := figures.band([points for one in runs.values() if (points := figures.curve(one.rows, name))]):
                lines[label], bands[label] = over
        if len({value for points in lines.values() for _, value in points}) > 1:
            charts.append(Curves(lines, "steps", title=title, note=note, bands=bands))
    return charts


def runs_table(variants: Variants, home: Path) -> Table:
    """All runs with links to their own pages; as CSV also with the figures of each."""
    rows, sheet = list[list[Text]](), []
    in_order = [run for ran in variants.values() for _, run in sorted(ran.items())]
    players = [player for run in in_order if (player := run.evaluated)]
    meanings = meanings_of(in_order)
    shown = figures.in_order((figure for player in players for figure in player.figures), meanings)
    for name, ran in variants.items():
        for seed, run in sorted(ran.items()):
            done, own = run.facts, run.evaluated
            means = [interval.mean if own and (interval := own.figures.get(figure)) else None for figure in shown]
            named = linked(run_name := f"{name} seed {seed}".strip(), run.path, home) or run_name
            rows.append([named, amount(done.steps), duration(done.seconds), f"{own.episodes:,}" if own else "–"])
            sheet.append((name, seed, done.steps, done.seconds, own.episodes if own else None, *means))
    titles = (figures.words(figure, meanings)[0] for figure in shown)
    head = ("variant", "seed", "steps", "seconds", "episodes", *titles)
    names = ("run", "steps", "trained for", "episodes evaluated")
    return Table(names, rows, (1, 2, 3), kind="fits", sheet=(head, sheet))


def made_by(variants: Variants, arguments: Sequence[str]) -> Table:
    """A table of task, config, commit, machine and command."""
    runs = [run for _, run in with_results(variants)]
    command = shlex.join(["python", "-m", "motif_jax.launch", *arguments]) if arguments else ""
    configs = [text for before, text in itertools.pairwise(arguments) if before in ("--config", "-config")]
    configs += [text.partition("=")[2] for text in arguments if re.match("--?config=", text)]
    rows: list[tuple[str, Sequence[str]]] = [
        ("task", [one.evaluated.task if one.evaluated else one.facts.task or "" for one in runs]),
        ("config", configs),
        ("commit", [one.machine.get("commit", "") for one in runs]),
        ("versions", [one.versions for one in runs]),
        ("machine", [machine_words(one.machine) for one in runs]),
    ]
    filled: list[tuple[str, Text]] = [(name, "; ".join(dict.fromkeys(filter(None, of)))) for name, of in rows]
    filled += [("command", code(command))] if command else []
    return Table(("", ""), [row for row in filled if row[1]], kind="fits")


STAGE = Stage(
    name="report",
    sections=("report",),
    config=ReportConfig,
    folders=lambda config, workdir: [],  # each page is written anew
    check=check,
    is_complete=is_complete,
    run=run,
    lock=without_lock,
    limits=Limits("--config.report.replays", "--config.report.replays"),
)
