"""Evaluate: how well a policy plays, over the same games for everybody, beside those that were evaluated before.

Episodes 0 to N - 1 of the evaluation games, which nobody is trained on, are played to their end; those that were begun
beyond them, because games are played side by side, do not count. So short episodes are not favoured. One directory per
player, `evaluate/NAME`: a line per episode, and a summary of means with 95 % bootstrap intervals. What was played
before a run was stopped, or for fewer episodes, is not played again.

The games are the same every time. A policy that samples its actions still does something else in them each time; a
greedy one does the same but for rounding, which depends on how many games ask at a time. The playing is in
policy_play.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.capacity import check_capacity
from motif_jax.actors.players import PLAYERS
from motif_jax.envs.vector import GameSettings
from motif_jax.files import write_config, write_json, write_lines
from motif_jax.stages.policy_choice import LAST, list_steps, parse_one
from motif_jax.structs import UserError

FLAG = "--config.evaluate.policy"
MATERIAL = ("seed", "env")  # so that whatever stands side by side is of the same games
FIGURES = {  # of an episode: what it is called in its line
    "return": "episode_return", "score": "score", "max_depth": "max_depth", "gold": "gold",
    "experience_level": "experience_level", "scout": "scout", "steps": "steps", "success": "success",
    "intrinsic_return": "intrinsic_return",
}  # fmt: skip
RESAMPLES = 2000
BESIDE = 4  # others in the table


class Contender(NamedTuple):
    """Who is evaluated."""

    name: str  # of its directory
    path: str  # "" for a scripted player, "." for this workdir's policy, or the checkpoints of another, absolute
    step: int  # which checkpoint
    greedy: bool


def artefacts(workdir: Path) -> list[Path]:
    """A directory per player."""
    return sorted(file.parent for file in (workdir / "evaluate").glob("*/config.json"))


def shared(config: ConfigDict) -> bool:
    """No: one job at a time."""
    return False


def check(config: ConfigDict) -> None:
    """Refuses values that cannot work."""
    section = config.evaluate
    GameSettings(**config.env).check()
    if section.policy not in (*PLAYERS, ""):
        parse_one(section.policy, FLAG)
    if section.episodes < 1:
        raise UserError(f"episodes must be at least 1, not {section.episodes} (--config.evaluate.episodes)")
    if section.hang_timeout_s <= 0:
        raise UserError(
            f"hang_timeout_s must be positive, not {section.hang_timeout_s} (--config.evaluate.hang_timeout_s)"
        )
    if config.seed < 0:
        raise UserError(f"seed must not be negative, not {config.seed} (--config.seed)")
    check_capacity(section.num_workers, section.games_per_worker, flag="--config.evaluate")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether there is a summary of this player over as many episodes."""
    try:
        contender = find_contender(config, workdir)
    except UserError:
        return False  # `run` tells; there may be a policy when it is this stage's turn
    summary = read_json(workdir / "evaluate" / contender.name / "summary.json")
    if summary is None:
        return False
    return (summary["path"], summary["episodes"]) == (contender.path, config.evaluate.episodes)


def find_contender(config: ConfigDict, workdir: Path) -> Contender:
    """Who is meant; checkpoints are looked for, but not read."""
    section = config.evaluate
    if section.policy in PLAYERS:
        return Contender(section.policy, "", 0, False)
    choice = parse_one(section.policy or str(workdir), FLAG)
    directory, steps = list_steps(choice.path, FLAG)
    step = steps[-1] if choice.which == LAST else int(choice.which)
    if step not in steps:
        has = ", ".join(map(str, steps))
        raise UserError(f"{choice.path!r} has no checkpoint {choice.which!r} ({FLAG}); it has {has}")
    home = directory
    while home.name in ("checkpoints", "policy"):
        home = home.parent
    own = home == workdir.resolve()
    name = f"{'policy' if own else home.name}-{step}{'-greedy' if section.greedy else ''}"
    return Contender(name, "." if own else str(directory), step, section.greedy)


def run(config: ConfigDict, workdir: Path) -> None:
    """Makes `workdir/evaluate/NAME`."""
    from motif_jax.stages.policy_play import make_playing, play

    # ---- who plays, and what was played already
    wanted = config.evaluate.episodes
    contender = find_contender(config, workdir)
    folder = workdir / "evaluate" / contender.name
    playing = make_playing(config, workdir, contender)
    about = contender._asdict() | playing.checksums
    rows: dict[int, dict[str, Any]] = {}
    before = read_json(folder / "player.json")
    if before and before["path"] != contender.path:
        raise UserError(
            f"{str(folder)!r} is of another policy of this name, {before['path']!r}: move it away, or use another "
            f"--workdir ({FLAG})"
        )
    if before == about:
        rows = {row["episode"]: row for row in read_rows(folder / "episodes.jsonl") if row["episode"] < wanted}
        if rows:
            print(f"evaluate: {len(rows):,} of {wanted:,} episodes of {contender.name} were played before")
    else:
        if before:
            print(f"evaluate: {contender.name} is played anew, as its parameters or its learnt reward have changed")
        (folder / "episodes.jsonl").unlink(missing_ok=True)
        write_json(folder / "player.json", about)
    (folder / "summary.json").unlink(missing_ok=True)  # of another number of episodes, or of who is no more
    write_config(folder, config)

    # ---- play
    def keep() -> None:
        write_lines(folder / "episodes.jsonl", [rows[number] for number in sorted(rows)])

    start, steps_before = time.monotonic(), sum(row["steps"] for row in rows.values())
    given_up = play(config, playing, rows, keep)
    keep()
    seconds = time.monotonic() - start
    steps = sum(row["steps"] for row in rows.values()) - steps_before

    # ---- what came of it
    figures = summarise([rows[number] for number in sorted(rows)], config.seed)
    write_json(folder / "summary.json", about | {
        "episodes": wanted,
        "episodes_given_up": given_up,
        "task": config.env.task,
        "seconds": round(seconds, 1),
        "steps_per_s": round(steps / seconds),
        "figures": figures,
    })  # fmt: skip
    print_table(workdir / "evaluate", contender.name)
    print(f"evaluate: {wanted:,} episodes, {steps:,} steps of them now, in {seconds:,.0f} s; {folder}")


def summarise(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Mean, and 95 % bootstrap interval of it, of each figure; null where the episodes do not have it."""
    found: dict[str, Any] = dict.fromkeys(FIGURES)
    known = {name: key for name, key in FIGURES.items() if rows and all(row[key] is not None for row in rows)}
    if not known:
        return found
    values = np.array([[row[key] for key in known.values()] for row in rows], float)  # [N, figures]
    rng = np.random.default_rng(seed)
    count = len(values)
    means = np.stack([values[rng.integers(count, size=count)].mean(0) for _ in range(RESAMPLES)])
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    for number, name in enumerate(known):
        found[name] = {"mean": float(values[:, number].mean()), "low": float(low[number]), "high": float(high[number])}
    return found


def print_table(directory: Path, name: str) -> None:
    """A row per figure: who was evaluated now, and beside it who was before."""
    others = sorted(path.parent.name for path in directory.glob("*/summary.json") if path.parent.name != name)
    summaries = {other: read_json(directory / other / "summary.json") or {} for other in (name, *others[:BESIDE])}
    columns = {other: [f"{summary['episodes']:,} episodes"] for other, summary in summaries.items()}
    for other, summary in summaries.items():
        for figure in FIGURES:
            paid_alike = figure != "intrinsic_return" or summary["reward"] == summaries[name]["reward"]
            columns[other].append(show(summary["figures"][figure]) if paid_alike else "another reward")
    width = {other: max(map(len, (other, *cells))) for other, cells in columns.items()}
    print(f"{'':18}" + "".join(f"  {other:>{width[other]}}" for other in columns))
    for number, figure in enumerate(("", *FIGURES)):
        print(f"{figure:18}" + "".join(f"  {cells[number]:>{width[other]}}" for other, cells in columns.items()))
    if len(others) > BESIDE:
        print(f"and {len(others) - BESIDE} more in {directory}")


def show(figure: Mapping[str, float] | None) -> str:
    """A mean with its interval."""
    if figure is None:
        return "-"
    numbers = [figure[name] for name in ("mean", "low", "high")]
    return "{} [{}, {}]".format(*(f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.2f}" for number in numbers))


def read_json(file: Path) -> dict[str, Any] | None:
    """What a file says; None where there is none."""
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{str(file)!r} is damaged ({error}): remove it (--workdir)") from error


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The lines of a file, which is written whole or not at all."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
