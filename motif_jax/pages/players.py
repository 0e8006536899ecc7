"""Reads the evaluated players of a workdir: the figures of each are computed from its episodes.

`evaluate/NAME` has a line per episode, and a summary of what its episodes do not tell: who played which games.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.files import read_json, read_lines
from motif_jax.pages.figures import Player
from motif_jax.run import from_plain

EPISODES, SUMMARY = "episodes.jsonl", "summary.json"  # of a player
FAMILY = "family"  # a figure that numbers kinds of missions: its mean is meaningless
END_NAMES = {  # for episodes without a cause
    "aborted": "time limit", "task_successful": "goal reached", "death": "death", "ended": "ended",
}  # fmt: skip
RESAMPLES = 2000
AT_ONCE = 2**17  # values drawn in one step of the bootstrap

Row = Mapping[str, Any]  # a line of `episodes.jsonl`
Statistics = dict[str, float | None]


def read_players(workdir: Path) -> dict[str, Player]:
    """The evaluated players by the names of their directories."""
    return {name: from_plain(Player, results) for name, results in read_results(workdir).items()}


def read_results(workdir: Path) -> dict[str, dict[str, Any]]:
    """The summaries of the evaluated players, each with the statistics of its episodes (`statistics_of`)."""
    results = {}
    for file in sorted(workdir.glob(f"evaluate/*/{SUMMARY}")):
        with contextlib.suppress(FileNotFoundError):  # a stage at work has just removed it
            episodes = file.with_name(EPISODES)
            versions = file.stat().st_mtime_ns, episodes.stat().st_mtime_ns if episodes.exists() else 0
            results[file.parent.name] = _read(file, *versions)
    return results


def with_statistics(about: dict[str, Any], rows: Iterable[Row]) -> dict[str, Any]:
    """A summary with the statistics of its episodes."""
    if "figures" in about:  # of version 0.2.0 and before, whose summaries had them
        return about
    return about | statistics_of(about, [row for row in rows if row["episode"] < about["episodes"]])


@functools.lru_cache(maxsize=256)
def _read(file: Path, *versions: int) -> dict[str, Any]:
    """A summary with the statistics of its episodes; `versions` tell whether the files have changed since."""
    return with_statistics(read_json(file), read_lines(file.with_name(EPISODES)))


def keys_of(figures: Iterable[str]) -> dict[str, str]:
    """All figures of an episode, the world's after the return, with their keys in episodes.jsonl."""
    names = dict.fromkeys(["return", *figures, "steps", "success", "intrinsic_return"])
    return {name: "episode_return" if name == "return" else name for name in names}


def statistics_of(about: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Figures (None if episodes lack one), returns of other reward sources and of terms, events, numbers of ends.

    With several kinds of missions, success in each is a figure. `about`: the summary; an interval over fewer episodes
    than it asked for has their number as its `n`.
    """
    seed, wanted, families = about["seed"], about["episodes"], about["families"]
    keys = {name: key for name, key in keys_of(about["measures"]).items() if not (families and name == FAMILY)}
    columns: dict[str, list[Any]] = {name: [row.get(key) for row in rows] for name, key in keys.items()}
    complete = {name: column for name, column in columns.items() if rows and None not in column}
    measured = dict.fromkeys(columns) | intervals(complete, seed, wanted)
    by_family = {name: [float(row["success"]) for row in rows if families[row[FAMILY]] == name] for name in families}
    played = {f"success_{name}": successes for name, successes in by_family.items() if successes}
    if len(played) > 1:  # each in other episodes
        measured |= {name: intervals({"": one}, seed, len(rows))[""] for name, one in played.items()}
    counted = [row["did"] for row in rows if row["did"] is not None]
    kinds = sorted({name for one in counted for name in one})
    did = {name: [one.get(name, 0) for one in counted] for name in kinds}
    # The end of each episode is its cause, if the causes of all are known, so that each end has only one name.
    has_causes = len(counted) == len(rows)
    ends = [(row["cause"] if has_causes else "") or END_NAMES[row["end_status"]] for row in rows]
    sums = rows[0].get("terms", {}) if rows else ()
    terms = {name: _shared([row.get("terms", {}).get(name, {}) for row in rows]) for name in sums}
    found = {
        "figures": measured,
        "did": intervals({name: column for name, column in did.items() if any(column)}, seed, wanted),
        "returns": intervals(_shared([row.get("returns", {}) for row in rows]), seed, wanted),
        "ends": dict(collections.Counter(ends).most_common()),
        "terms": {name: intervals(columns, seed, wanted) for name, columns in terms.items()},
    }
    in_order: dict[str, Any] = json.loads(json.dumps(found, sort_keys=True))  # the same each time
    return in_order


def _shared(returns: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The returns of each episode by name; without names that some episodes lack."""
    names = [name for name in (returns[0] if returns else ()) if all(name in one for one in returns)]
    return {name: [one[name] for one in returns] for name in names}


def intervals(columns: Mapping[str, Sequence[float]], seed: int, wanted: int) -> dict[str, Statistics]:
    """Mean and median of each column; with two or more episodes also their 95 % bootstrap intervals.

    The same episodes are drawn for all columns. `n` is their number if it is not the `wanted` one.
    """
    if not columns:
        return {}
    values = np.array(list(columns.values()), float).T  # [N, columns]
    rng, count = np.random.default_rng(seed), len(values)
    statistics = {"mean": [column.mean() for column in values.T], "median": [*np.median(values, 0)]}
    if count > 1:
        means, medians = np.empty((RESAMPLES, len(columns))), np.empty((RESAMPLES, len(columns)))
        step = max(1, AT_ONCE // values.size)
        for start in range(0, RESAMPLES, step):
            some = slice(start, min(start + step, RESAMPLES))
            drawn = values[rng.integers(count, size=(some.stop - start, count))]
            means[some], medians[some] = drawn.mean(1), np.median(drawn, 1)
        statistics["low"], statistics["high"] = np.quantile(means, (0.025, 0.975), axis=0)
        statistics["median_low"], statistics["median_high"] = np.quantile(medians, (0.025, 0.975), axis=0)
    unknown: Statistics = dict.fromkeys(("low", "high", "median_low", "median_high"))
    unknown |= {} if count == wanted else {"n": count}
    return {
        name: unknown | {key: float(numbers[at]) for key, numbers in statistics.items()}
        for at, name in enumerate(columns)
    }
