"""Summary of evaluated episodes: means with intervals, ends, events; and its table."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax import files
from motif_jax.console import print_line
from motif_jax.envs.protocols import TASK, suffix
from motif_jax.envs.rules import Rules
from motif_jax.envs.texts import read_texts
from motif_jax.envs.world import World
from motif_jax.pages.figures import SUMMARIES, Player
from motif_jax.pages.formats import Interval, exact
from motif_jax.pages.over_seeds import large_exponents
from motif_jax.run import Run, from_plain

EPISODES, SUMMARY = "episodes.jsonl", "summary.json"  # of a player: a line per episode; figures over all
COMMON = {  # figures of every world's episodes, with their keys in episodes.jsonl
    "return": "episode_return", "steps": "steps", "success": "success", "intrinsic_return": "intrinsic_return",
}  # fmt: skip
FAMILY = "family"  # a figure that numbers kinds of missions: its mean is meaningless
END_NAMES = {  # for episodes without a cause
    "aborted": "time limit", "task_successful": "goal reached", "death": "death", "ended": "ended",
}  # fmt: skip
RESAMPLES = 2000
BESIDE = 4  # other players in the table
HAPPENINGS = 8  # in the table
OTHER_REWARD, NEVER = "another reward", Interval(0.0, 0.0, 0.0)

EpisodeRow = dict[str, Any]  # a line of `episodes.jsonl`
Statistics = dict[str, float | None]


def rules_of(world: World) -> Rules:
    """The rules that count the events of a world's episodes; raises UserError for an invalid file."""
    return read_texts(world.about, world.texts).rules()


def summarise_episodes(
    rows: Sequence[Mapping[str, Any]],
    seed: int,
    figures: Iterable[str],
    rules: Rules,
    families: Sequence[str] = (),
    episodes: int | None = None,
) -> dict[str, Any]:
    """Figures (None if episodes lack one), returns of other reward sources and of terms, events, numbers of ends.

    Args:
      figures, rules: of the world: figures beside COMMON, and the rules by which its events were counted.
      families: names of its kinds of missions, by FAMILY; with several kinds, success in each is a figure.
      episodes: the wanted number; an interval over fewer has their number as its `n`. None: the number of rows.
    """
    wanted = len(rows) if episodes is None else episodes
    keys = {name: key for name, key in keys_of(figures).items() if not (families and name == FAMILY)}
    columns: dict[str, list[Any]] = {name: [row.get(key) for row in rows] for name, key in keys.items()}
    complete = {name: column for name, column in columns.items() if rows and None not in column}
    counted = [row["did"] for row in rows if row["did"] is not None]
    did = {name: [happened.get(name, 0) for happened in counted] for name in rules.names}
    # The end of each episode is its cause, if the causes of all are known, so that each end has only one name.
    has_causes = len(counted) == len(rows)
    ends = [(row["cause"] if has_causes else "") or END_NAMES[row["end_status"]] for row in rows]
    programs = rows[0].get("terms", {}) if rows else ()
    terms = {name: _shared([row.get("terms", {}).get(name, {}) for row in rows]) for name in programs}
    return {
        "figures": dict.fromkeys(columns) | intervals(complete, seed, wanted) | _by_family(rows, seed, families),
        "aims": sorted(rules.aims),
        "did": intervals({name: column for name, column in did.items() if any(column)}, seed, wanted),
        "returns": intervals(_shared([row.get("returns", {}) for row in rows]), seed, wanted),
        "ends": dict(collections.Counter(ends).most_common()),
    } | ({"terms": {name: intervals(columns, seed, wanted) for name, columns in terms.items()}} if terms else {})


def _by_family(rows: Sequence[Mapping[str, Any]], seed: int, families: Sequence[str]) -> dict[str, Statistics]:
    """Success in each family of missions that was played, if there are several."""
    of = {name: [float(row["success"]) for row in rows if families[row[FAMILY]] == name] for name in families}
    played = {name: successes for name, successes in of.items() if successes}
    if len(played) < 2:
        return {}
    return {f"success_{name}": intervals({"": one}, seed, len(rows))[""] for name, one in played.items()}


def _shared(returns: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The returns of each episode by name; without names that some episodes lack."""
    names = [name for name in (returns[0] if returns else ()) if all(name in one for one in returns)]
    return {name: [one[name] for one in returns] for name in names}


def keys_of(figures: Iterable[str]) -> dict[str, str]:
    """All figures of an episode, the world's after the return, with their keys in episodes.jsonl."""
    return {"return": COMMON["return"]} | {name: name for name in figures} | COMMON


def intervals(columns: Mapping[str, Sequence[float]], seed: int, wanted: int) -> dict[str, Statistics]:
    """Mean and median of each column; with two or more episodes also their 95 % bootstrap intervals.

    The same episodes are drawn for all columns. `n` is their number if it is not the `wanted` one.
    """
    if not columns:
        return {}
    values = np.array(list(columns.values()), float).T  # [N, columns]
    exponents = large_exponents(values)
    values = np.ldexp(values, -exponents)
    rng, count = np.random.default_rng(seed), len(values)
    statistics = {"mean": [column.mean() for column in values.T], "median": [*np.median(values, 0)]}
    if count > 1:
        means, medians = np.empty((RESAMPLES, len(columns))), np.empty((RESAMPLES, len(columns)))
        for number in range(RESAMPLES):
            drawn = values[rng.integers(count, size=count)]
            means[number], medians[number] = drawn.mean(0), np.median(drawn, 0)
        statistics["low"], statistics["high"] = np.quantile(means, (0.025, 0.975), axis=0)
        statistics["median_low"], statistics["median_high"] = np.quantile(medians, (0.025, 0.975), axis=0)
    unknown: Statistics = dict.fromkeys(("low", "high", "median_low", "median_high"))
    unknown |= {} if count == wanted else {"n": count}
    return {
        name: unknown | {key: float(np.ldexp(numbers[at], exponents[at])) for key, numbers in statistics.items()}
        for at, name in enumerate(columns)
    }


def print_table(directory: Path, name: str, own: Iterable[str]) -> None:
    """Prints a row per figure, the world's `own` too, with columns for the player `name` and up to BESIDE others."""
    players = Run(directory.parent).read_each(SUMMARIES, Player)
    mine = players.pop(name)
    others = {one: player for one, player in players.items() if player.protocol == mine.protocol}
    shown = {name: mine} | dict(itertools.islice(others.items(), BESIDE))

    rows = [["", *shown], ["", *(f"{player.episodes:,} episodes" for player in shown.values())]]
    for figure in dict.fromkeys([*keys_of(own), *sorted(mine.figures)]):  # also the success in families of missions
        cells = [
            OTHER_REWARD
            if figure == "intrinsic_return" and player.reward != mine.reward
            else show(player.figures.get(figure), median=True)
            for player in shown.values()
        ]
        if any(player.figures.get(figure) for player in shown.values()):
            rows.append([figure, *cells])
    for source in sorted(mine.returns):  # the sources beside the learnt reward
        cells = [
            show(player.returns.get(source)) if player.sources.get(source) == mine.sources.get(source) else OTHER_REWARD
            for player in shown.values()
        ]
        rows.append([f"{source} return", *cells])
    for event in sorted(mine.did, key=lambda event: -mine.did[event].mean)[:HAPPENINGS]:
        rows.append([event, *(show(player.did.get(event, NEVER if player.did else None)) for player in shown.values())])
    _print_rows(rows)
    if len(others) > BESIDE:
        print_line(f"and {len(others) - BESIDE} more in {directory}")


def print_controls(directory: Path, played: Mapping[str, Sequence[str]], controls: Mapping[str, str]) -> None:
    """Prints success and return of the players by protocol, and by the names of `controls`; writes `controls.json`."""
    shown, names = ("success", "return", "steps"), {protocol: name for name, protocol in controls.items()}
    table: list[dict[str, Any]] = []
    for protocol, players in played.items():
        games = names.get(protocol, "true missions" if protocol == TASK else protocol)
        for name in reversed(players):  # the policy itself comes first
            summary = files.read_json(directory / name / SUMMARY)
            row = {"games": games, "protocol": protocol, "player": name.removesuffix(suffix(protocol))}
            table.append(row | {"episodes": summary["episodes"]} | {one: summary["figures"].get(one) for one in shown})
            for figure, success in summary["figures"].items():
                if figure.startswith("success_"):
                    table.append(
                        row | {"games": f"{games}, {figure.partition('_')[2]}", "episodes": "", "success": success}
                    )
    files.write_json(directory / "controls.json", {"rows": table})
    head = ["games", "protocol", "player", "episodes"]
    rows = [[*(str(row[name]) for name in head), *_intervals(row, shown)] for row in table]
    _print_rows([[*head, *shown], *rows])


def print_sweep(directory: Path, names: Sequence[str]) -> None:
    """Prints a row per player with return, success and steps; the best decoding has a star. Writes `sweep.json`."""
    shown, table = ("return", "success", "steps"), list[dict[str, Any]]()
    for name in names:
        summary = files.read_json(directory / name / SUMMARY)
        row = {"name": name, "decoding": summary.get("decoding"), "episodes": summary["episodes"]}
        table.append(row | {figure: summary["figures"].get(figure) for figure in shown})
    swept = [row for row in table if row["decoding"] and row["return"]]
    best = max(swept, key=lambda row: row["return"]["mean"], default={"name": ""})["name"]
    files.write_json(directory / "sweep.json", {"best": best, "rows": table})
    rows = [["", "episodes", *shown]]
    for row in table:
        mark = " *" if row["name"] == best else ""
        rows.append([f"{row['name']}{mark}", f"{row['episodes']:,}", *_intervals(row, shown)])
    _print_rows(rows)


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        print_line("  ".join([f"{first:{widths[0]}}", *cells]))


def _intervals(row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [show(from_plain(Interval | None, row.get(name))) for name in names]


def show(interval: Interval | None, median: bool = False) -> str:
    """A mean with its interval, and the `median` if that is wanted; unknown ones are left out."""
    if interval is None:
        return "-"
    return interval.spelt + ("" if interval.median is None or not median else f" median {exact(interval.median)}")


def read_json(file: Path) -> dict[str, Any] | None:
    """The content of a JSON file; None if the file does not exist."""
    return files.read_json(file) if file.exists() else None


def read_rows(file: Path) -> list[EpisodeRow]:
    """The lines of `episodes.jsonl`; [] if the file does not exist."""
    return [*files.read_lines(file)] if file.exists() else []
