"""Figures of training and of evaluated players: titles, order, records of players, tables, charts, and statistics.

What is said about a figure is the world's (`Meaning`); one about which nothing is said is shown under its name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.pages.blocks import (
    Block,
    Folded,
    Heading,
    Interval,
    Paragraph,
    Span,
    Table,
    Text,
    asset,
    cell,
    data_script,
    esc,
    exact,
    noted,
    of_intervals,
)
from motif_jax.pages.charts import COLOURS, Band, Bars, Point, Track, reach, spark
from motif_jax.screens import PALETTE
from motif_jax.structs import Meaning

GENERAL = (  # of the figures of every world; worlds say those of their own
    Meaning("return", "the game's return", better="higher"),
    Meaning("steps", note="until the end"),  # see `better`
    Meaning("success", note="share of episodes", better="higher"),
    Meaning("intrinsic_return", "learnt return", "what the preferences reward", better="higher"),
)
Meanings = tuple[Meaning, ...]  # of a world's figures, in the order of the page
Curve = tuple[str, str, str]  # metric of training, title, note
CURVES: tuple[Curve, ...] = (  # first these two, then those of the world's figures
    ("episode/intrinsic_return", "Learnt return", "per episode"),
    ("episode/return", "The game's return", "per episode"),
    ("episode/success", "Success", "share of episodes"),
    ("episode/steps", "Length", "steps per episode"),
    ("train/entropy", "Entropy", "of the policy"),
    ("steps_per_s", "Speed", "steps/s"),
)
COUNTS = ("count", "all", "share_death", "share_ended", "share_aborted")  # of episodes; without a curve


def meaning_of(figure: str, own: Meanings) -> Meaning:
    """What is said about a figure; `own`: of the world's figures."""
    known = next((one for one in (*own, *GENERAL) if one.name == figure), Meaning(figure))
    return known._replace(title=known.title or figure.replace("_", " "))


def words(figure: str, own: Meanings) -> tuple[str, str]:
    """The title of a figure, and a note on it."""
    known = meaning_of(figure, own)
    return known.title, known.note


def in_order(figures: Iterable[str], own: Meanings) -> list[str]:
    """The figures in the order of the page: the return, those about which nothing is said, the world's, the others."""
    first, *last = GENERAL
    order = [first.name, "", *(one.name for one in (*own, *last))]
    return sorted(dict.fromkeys(figures), key=lambda figure: order.index(figure if figure in order else ""))


def better(figure: str, figures: Iterable[str], own: Meanings) -> str:
    """Whether "higher" or "lower" is better; "" if that is not known, as where a world says nothing about its figure.

    `figures` are all measured ones: fewer steps are better where episodes can succeed.
    """
    if figure == "steps":
        return "lower" if "success" in figures else ""
    of_family = "higher" if figure.startswith("success_") else ""  # of missions
    return meaning_of(figure, own).better or of_family


def in_place_of_return(figures: Iterable[str], own: Meanings) -> str:
    """The world's figure that says better than the return how good a game was; "" without one."""
    measured = {*figures}
    return next((one.name for one in own if one.verb and one.name in measured), "")


def compared(figures: Iterable[str], own: Meanings) -> list[str]:
    """The figures for the comparison with random play on the first screen, the most informative first."""
    names = in_order(figures, own)
    every = {one.name for one in GENERAL}
    world = [name for name in names if name not in every and meaning_of(name, own).compared]
    general = ["intrinsic_return", "success", *([] if in_place_of_return(names, own) else ["return"])]
    return [*world, *(name for name in general if name in names)]


def curves_of(metrics: Iterable[str], own: Meanings) -> list[Curve]:
    """The curves of training for these metrics, in the order of the page."""
    shown = {name for name, *_ in CURVES} | {f"episode/{name}" for name in COUNTS}
    names = sorted(name.removeprefix("episode/") for name in {*metrics} - shown if name.startswith("episode/"))
    of_world = {name: meaning_of(name, own) for name in in_order(names, own)}
    curves = [(f"episode/{name}", one.title.capitalize(), one.note) for name, one in of_world.items() if one.curve]
    return [*CURVES[:2], *curves, *CURVES[2:]]


def curve(rows: Sequence[Mapping[str, Any]], name: str) -> list[Point]:
    """The points (steps, value) of a metric of training, from the rows that have it."""
    return [(row["env_steps"], float(row[name])) for row in rows if row.get(name) is not None]


def all_metrics(rows: Sequence[Mapping[str, Any]]) -> Block:
    """A folded table of everything that a stage has written to `metrics.jsonl`, with small curves."""
    body: list[list[Text]] = []
    for name in sorted({name for row in rows for name in row}):
        if values := [row[name] for row in rows if isinstance(row.get(name), int | float)]:
            figures = (f"{value:,.4g}" for value in (values[0], min(values), max(values), values[-1]))
            body.append([name, *figures, spark(values)])
    head = ("metric", "first", "lowest", "highest", "last", "")
    return Folded("All metrics", Table(head, body, (1, 2, 3, 4), kind="fits"))


# ---- evaluated players

SELDOM = 0.05  # times per episode; rarer behaviours are left out


class HowDecoded(NamedTuple):
    """How a policy that writes is decoded."""

    kind: str
    beta: float
    rerank_values: float = 0.0
    include_logits: bool = True


class Player(NamedTuple):
    """An evaluated player and its results (`players.read_players`)."""

    path: str  # "." for the workdir's policy, "" for scripted players
    step: int
    greedy: bool
    episodes: int
    task: str
    figures: dict[str, Interval | None]
    reward: str | None = None  # checksum of the learnt reward that valued its episodes
    did: Mapping[str, Interval] = {}  # per episode
    ends: Mapping[str, int] = {}
    returns: Mapping[str, Interval] = {}  # of the reward sources beside the learnt reward, by name
    terms: Mapping[str, Mapping[str, Interval]] = {}  # returns of terms, of sources that are sums
    sources: Mapping[str, Any] = {}  # metadata of these sources; the same metadata means the same rewards
    aims: tuple[str, ...] = ()  # behaviours that the game's goals ask for
    protocol: str = ""  # the rules of its games; "": those of the workdir
    rules: str = ""  # the same in words: "by the rules of ..."
    decoding: HowDecoded | None = None  # of a policy that writes
    recipe: str = ""  # the algorithm that learnt its values
    repeatable: bool = True  # whether its games can be repeated exactly
    variant: str = ""  # of the policy that plays; "": the policy itself
    name: str = ""  # of its directory
    meanings: Meanings = ()  # of the world's figures

    @property
    def kind(self) -> str:
        """The kind of decoding, with a remark if the policy's logits are left out; "" without decoding."""
        how = self.decoding
        return how.kind + ("" if how.include_logits else ", without logits") if how else ""

    @property
    def beta(self) -> float:
        """The factor of Q - V in its decoding."""
        return self.decoding.beta if self.decoding else 0.0

    @property
    def by_values(self) -> bool:
        """Whether values influence its texts, by beta or by ranks of candidates."""
        how = self.decoding
        return bool(how and (how.beta or (how.kind == "rerank" and how.rerank_values)))

    @property
    def mean_return(self) -> float:
        """The mean return; minus infinity if it is not known."""
        interval = self.figures.get("return")
        return interval.mean if interval else float("-inf")


Players = dict[str, list[Player]]  # by the rules of their games; first "", those of the workdir


def arranged(by_directory: Mapping[str, Player]) -> Players:
    """Players by the rules of their games: first the workdir's policy, its best decoding first; random play last."""

    def order(player: Player) -> tuple[Any, ...]:
        scripted = player.path == ""
        best = -player.mean_return if player.decoding and player.figures.get("return") else 0.0
        is_random = scripted and player.name.startswith("random")
        return player.path != ".", is_random, scripted, -player.step, best, bool(player.variant), player.greedy

    players: Players = {"": []}
    for player in sorted((player._replace(name=name) for name, player in by_directory.items()), key=order):
        players.setdefault(player.protocol, []).append(player)
    return players


def own_of(players: Sequence[Player]) -> Player | None:
    """The workdir's policy, at its latest evaluated checkpoint; not a variant of it."""
    return next((one for one in players if one.path == "." and not one.variant), None)


def chance_of(players: Sequence[Player]) -> Player | None:
    """Random play."""
    return next((player for player in players if player.name.removesuffix(f"-{player.protocol}") == "random"), None)


def meanings_of(players: Iterable[Player]) -> Meanings:
    """What the worlds of these players say about their figures."""
    return tuple(dict.fromkeys(one for player in players for one in player.meanings))


def label(player: Player) -> str:
    """The name of a player in the report."""
    if player.decoding:
        name = "the policy" if player.path == "." else player.name.rpartition("-beta")[0]
        return f"{name}, beta {player.beta:g}{'' if player.kind == 'sample' else f', {player.kind}'}"
    if player.path == ".":
        how = f" as {player.variant}" if player.variant else ""
        return f"the agent{how}{', greedy' if player.greedy else ''}, step {player.step:,}"
    name = player.name.removesuffix(f"-{player.protocol}")
    return {"random": "random play", "explorer": "the explorer", "bot": "the bot"}.get(name, name)


def figures_table(named: Sequence[tuple[str, Player]]) -> Table:
    """A table with a row per figure and a column per player."""
    names, players = zip(*named, strict=True)
    own = meanings_of(players)
    one_reward = len({player.reward for player in players}) == 1
    figures: list[FigureRow] = []
    for figure in in_order((figure for player in players for figure in player.figures), own):
        intervals = [player.figures.get(figure) for player in players]
        if any(interval and interval.mean for interval in intervals):
            figures.append((*words(figure, own), intervals, figure != "intrinsic_return" or one_reward))
    for source in {source: None for player in players for source in player.returns}:
        alike = all(player.sources.get(source) == players[0].sources.get(source) for player in players)
        intervals = [player.returns.get(source) for player in players]
        figures.append((f"{source} return", "from this reward source", intervals, alike))
    return intervals_table(names, figures, [player.episodes for player in players])


FigureRow = tuple[str, str, Sequence[Interval | None], bool]  # title, note, values, whether these are comparable


def intervals_table(names: Sequence[str], figures: Iterable[FigureRow], counts: Sequence[int] = ()) -> Table:
    """A table with a row per figure and a column per name; comparable values have a scale. `counts`: of episodes."""
    rows: list[list[Text]] = [["episodes", *(f"{count:,}" for count in counts)]] if counts else []
    sheet: list[tuple[str, Sequence[Interval | None]]] = [("episodes", list(map(Interval, counts)))] if counts else []
    for title, note, intervals, alike in figures:
        low, high = reach(intervals)
        cells = [noted(title, note) if alike else (title, " ", Span("of different rewards", "small"))]
        for interval, colour in zip(intervals, itertools.cycle(COLOURS), strict=False):
            median = f" median {exact(interval.median)}" if interval and interval.median is not None else ""
            scale = [Track(interval, low, high, colour)] if interval and alike else []
            cells.append((cell(interval, median), *scale))
        rows.append(cells)
        pairs = itertools.zip_longest(intervals, counts)
        sheet.append((title, [interval and interval._replace(n=interval.n or count) for interval, count in pairs]))
    return Table(("", *names), rows, kind="figures", sheet=of_intervals(sheet, names))


def gap(intervals: Sequence[Interval]) -> float:
    """How far apart the lowest and the highest interval are, as a share of the largest end; negative: they overlap."""
    lows, highs = zip(*(interval.band for interval in intervals), strict=True)
    return (max(lows) - min(highs)) / max(*map(abs, lows + highs), 1e-9)


def behaviours(named: Sequence[tuple[str, Player]]) -> list[Block]:
    """Behaviours per episode: those that goals ask for first, then those that differ most between players."""
    named = [(name, player) for name, player in named if player.did]
    if not named:
        return []
    trained = [at for at, (_, player) in enumerate(named) if player.path]
    # Several agents are compared with each other, a single one with the players beside it.
    compared = trained if len(trained) > 1 else range(len(named))
    aims, rows = {behaviour for _, player in named for behaviour in player.aims}, []
    for behaviour in {behaviour for _, player in named for behaviour in player.did}:
        done = [player.did.get(behaviour, Interval(0.0, 0.0, 0.0)) for _, player in named]
        if max(interval.mean for interval in done) >= SELDOM:
            interest = gap([done[at] for at in compared]) if len(named) > 1 else done[0].mean
            rows.append((behaviour not in aims, -interest, behaviour, done))
    first = "; first those that goals ask for" + (", then those that differ most" if len(named) > 1 else "")
    return [
        Heading("What they did"),
        Paragraph(f"Behaviours per episode, counted from messages{first}. Each row has its own scale.", "soft"),
        Bars([(behaviour, "", done) for _, _, behaviour, done in sorted(rows)], [name for name, _ in named]),
    ]


# ---- replays: assets/player.html shows them; assets/player.js unpacks and draws them in the browser

WATCHED = "watched"  # of an evaluated player: a `Watched`
FEW = 5  # steps; shorter episodes are not shown first
REACHED = 3  # the same for episodes that reached their goal


class PackedReplay(NamedTuple):
    """An episode, as a page holds it."""

    title: str
    steps: int
    reached: bool  # whether it reached its goal
    data: dict[str, Any]  # `stages.evaluate.results.pack`


class Watched(NamedTuple):
    """The replays of an evaluated player."""

    replays: tuple[PackedReplay, ...]


def replay_blocks(players: Sequence[tuple[bool, Watched]], most: int) -> list[Block]:
    """The replay player and at most `most` replays; [] if there are none.

    Those of the workdir's policy (True) stand before those of the other players, which come in turn.
    """
    own = [(player, replay) for is_own, player in players if is_own for replay in player.replays]
    others = [[(player, replay) for replay in player.replays] for is_own, player in players if not is_own]
    chosen = [*own, *(one for turn in itertools.zip_longest(*others) for one in turn if one)][:most]
    if not chosen:
        return []
    # First the longest that reached its goal, in REACHED steps, else the first one of FEW, of the first player.
    of_first = [(number, replay) for number, (player, replay) in enumerate(chosen) if player is chosen[0][0]]
    reached = [one for one in of_first if one[1].reached and one[1].steps >= REACHED]
    long = [number for number, replay in of_first if replay.steps >= FEW]
    first = max(reached, key=lambda one: one[1].steps)[0] if reached else [*long, 0][0]
    return [Replays([replay for _, replay in chosen], first)]


class Replays(Block):
    """The player of these replays, which begins with the one of number `first`.

    It is in no section: the replays are in files of their own (WATCHED).
    """

    def __init__(self, replays: Sequence[PackedReplay], first: int):
        self.replays, self.first = replays, first

    def html(self) -> str:
        options, data = "", [data_script("colours", [f"rgb({red} {green} {blue})" for red, green, blue in PALETTE])]
        for number, replay in enumerate(self.replays):
            selected = " selected" if number == self.first else ""
            options += f'<option value="replay-{number}"{selected}>{esc(replay.title)}</option>'
            data.append(data_script(f"replay-{number}", replay.data))
        return "\n".join([asset("player.html").replace("OPTIONS_OF_REPLAYS", options), *data])


# ---- over the seeds of an experiment
#
# The unit is the seed: an experiment's score with one seed is the mean over its episodes, and intervals are for the
# mean over seeds. As in Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (arXiv
# 2108.13264): the interquartile mean, the bootstrap over seeds, and the probability of improvement.

RESAMPLES = 5000
ENDS = (1 - 0.95) / 2, (1 + 0.95) / 2  # quantiles of all intervals
MOST_SEEDS = 10_000  # larger numbers are not reported


def scores_of(players: Sequence[Player | None]) -> dict[str, np.ndarray]:
    """The figures that all of these players have, a value per player. [S] each"""
    measured = [player.figures for player in players if player]
    return {
        name: np.array([interval.mean for one in measured if (interval := one[name])])
        for name in (measured[0] if measured else ())
        if all(one.get(name) for one in measured)
    }


def interquartile_mean(scores: np.ndarray) -> float:
    """The mean of the middle half of all scores, with fractional weights at its edges. [N] -> number"""
    ordered = np.sort(scores)
    count = len(ordered)
    edges = np.arange(count + 1)
    # The part of each score's interval [i, i + 1] between a quarter and three quarters of all.
    weight = np.minimum(edges[1:], 0.75 * count) - np.maximum(edges[:-1], 0.25 * count)
    return float(np.average(ordered, weights=np.clip(weight, 0, None)))


def estimate(scores: np.ndarray, seed: int = 0) -> Interval:
    """The mean of the scores of all seeds, with its bootstrap interval. [S]"""
    mean = float(scores.mean())
    if len(scores) < 2:
        return Interval(mean)
    drawn = np.random.default_rng(seed).integers(len(scores), size=(RESAMPLES, len(scores)))
    return Interval(mean, *np.quantile(scores[drawn].mean(1), ENDS).tolist())


def improvement(ours: np.ndarray, theirs: np.ndarray) -> Interval:
    """The probability that a run of ours scores higher than one of theirs; equal scores count half."""

    def share_above(ours: np.ndarray, theirs: np.ndarray) -> float:
        return float(((ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)).mean())

    share, rng = share_above(ours, theirs), np.random.default_rng(0)
    if max(len(ours), len(theirs)) < 2:
        return Interval(share)
    drawn = [share_above(rng.choice(ours, len(ours)), rng.choice(theirs, len(theirs))) for _ in range(RESAMPLES)]
    return Interval(share, *np.quantile(drawn, ENDS).tolist())


def seeds_needed(ours: np.ndarray, theirs: np.ndarray) -> int | None:
    """The number of seeds per side that would detect a difference of this size with a power of 80 %.

    For two means at the 5 % level: n = (z_level + z_power)^2 (s1^2 + s2^2) / difference^2, at least two. None if the
    means are equal, if both sides have fewer than two seeds, or if n exceeds MOST_SEEDS.
    """
    difference = float(ours.mean() - theirs.mean())
    if not (difference**2) or max(len(ours), len(theirs)) < 2:
        return None
    spread = sum(float(np.var(scores, ddof=1)) for scores in (ours, theirs) if len(scores) > 1)
    z_level, z_power = 1.959964, 0.841621  # quantiles of the normal distribution
    needed = (z_level + z_power) ** 2 * spread / difference**2
    return None if needed > MOST_SEEDS else max(math.ceil(needed), 2)


def band(curves: Sequence[Sequence[Point]], points: int = 100) -> tuple[list[Point], Band] | None:
    """The mean curve over seeds with its interval, on the steps that every seed has reached; else interpolated.

    None without curves, or if they have no steps in common. The band of a single seed is its curve.
    """
    first, last = max((curve[0][0] for curve in curves), default=1), min((curve[-1][0] for curve in curves), default=0)
    if first > last:
        return None
    grid = np.linspace(first, last, points if last > first else 1)
    stack = np.stack([np.interp(grid, *np.array(curve, float).T) for curve in curves])  # [S, P]
    middle = low = high = stack.mean(0)
    if len(stack) > 1:
        drawn = np.random.default_rng(0).integers(len(stack), size=(RESAMPLES // 5, len(stack)))
        low, high = np.quantile(stack[drawn].mean(1), ENDS, axis=0)
    steps = grid.tolist()
    return list(zip(steps, middle.tolist(), strict=True)), Band(steps, low.tolist(), high.tolist())
