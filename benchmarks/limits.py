"""How near training comes to what its games alone give, with a player that has learnt; and what is in the way.

A player that has learnt costs its games twice as much as one that knows nothing. The games alone are the recorded ones
of the released agent (envs/nethack/recorded.py), in as many processes and groups as in training; the player that has
learnt is the same agent. It has the small network, so both trainings have.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ml_collections import ConfigDict
from nle.nethack.nethack import DLPATH

from benchmarks.policy import STRETCH, Training
from benchmarks.rows import Row, Rows, medians, take_turns
from motif_jax.console import print_lines
from motif_jax.envs.nethack.engine import find_library
from motif_jax.envs.nethack.world import WHEEL
from motif_jax.structs import UserError

RELEASE = "motif_jax/quickstart"
STILL = 1e-9  # learning rate of the player that has learnt, so that it does not unlearn what it knows
WAITS = {  # the part of a training, and the time in which it waits for others
    "the games' workers": "workers_wait",
    "the acting thread": "wait_for_workers",
    "the learner": "wait_for_batch",
}


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `limits.*`, and a table of them."""
    if config.env.world != "nethack":
        raise UserError(f"the recorded games are NetHack's, not those of {config.env.world!r} (--config.env.world)")
    config = config.copy_and_resolve_references()
    config.env.update({"task": "score", "stairs_message": True})  # as recorded
    still = config.copy_and_resolve_references()
    still.policy.learning_rate = STILL
    trainings = {
        "learnt": Training(still, "small", rewarded=True, init_from=RELEASE),
        "unlearnt": Training(config, "small", rewarded=True),
    }
    for training in trainings.values():
        training.act(0.0)  # which compiles the policy
        training.run(0.0)  # and the update
    seconds = STRETCH * config.benchmark.seconds
    shares: dict[str, list[float]] = {name: [] for name in WAITS}

    def learnt() -> float:
        rate = trainings["learnt"].run(seconds)
        for name, wait in WAITS.items():
            if wait in trainings["learnt"].spent:
                shares[name].append(100 * (1 - rate * trainings["learnt"].spent[wait]))
        return rate

    runs: dict[str, Callable[[], float]] = {
        "ceiling": partial(ceiling, config, seconds),
        "learnt": learnt,
        "unlearnt": partial(trainings["unlearnt"].run, seconds),
    }
    rounds = take_turns(runs, config.benchmark.repeats)
    rows = Rows()
    for name, rate in medians(rounds).items():
        rows.add(f"limits.{name}", rate, "steps/s", **trainings["learnt"].sizes())
    reached = [100 * part / whole for part, whole in zip(rounds["learnt"], rounds["ceiling"], strict=True)]
    rows.add("limits.share", statistics.median(reached), "%", least=f"{min(reached):.0f}", most=f"{max(reached):.0f}")
    for name, found in shares.items():
        if found:
            rows.add(f"limits.busy.{name.split()[-1]}", statistics.median(found), "%", of=name)
    print_lines(make_table({row.name: row for row in rows}))
    return rows


def ceiling(config: ConfigDict, seconds: float) -> float:
    """Steps per second of recorded games, in the processes and groups of the config, without a network."""
    section = config.policy
    library = DLPATH if config.env.engine == WHEEL else find_library().path
    words = (library, config.env.screen, section.games_per_worker, section.groups, seconds)
    command = [sys.executable, "-m", "motif_jax.envs.nethack.recorded", "pace", *map(str, words)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(max(section.num_workers, 1))
    ]
    try:
        for worker in workers:
            worker.stdout.readline()  # type: ignore[union-attr]
        for worker in workers:  # all have begun their games, and play at the same time
            worker.stdin.write("\n")  # type: ignore[union-attr]
            worker.stdin.flush()  # type: ignore[union-attr]
        return sum(float(worker.communicate()[0]) for worker in workers)
    finally:
        for worker in workers:
            worker.kill()


def make_table(rows: Mapping[str, Row]) -> str:
    """The rows as a table in Markdown, the busiest part of training below it."""
    sizes = rows["limits.ceiling"].sizes
    about = f"{sizes['games']:,} games in {sizes['workers']} processes, batches of {sizes['batch']:,} steps"
    lines = {
        "ceiling": "the ceiling: these games alone, recorded play of an agent that has learnt",
        "learnt": f"training with this agent, the small network: {rows['limits.share'].value:.0f} % of the ceiling",
        "unlearnt": "the same from nothing, in easier games",
    }
    table = [f"| {text} | {rows[f'limits.{name}'].value:,.0f} |" for name, text in lines.items()]
    busy = sorted((row for name, row in rows.items() if name.startswith("limits.busy.")), key=lambda row: -row.value)
    parts = ", then ".join(f"{row.sizes['of']} ({row.value:.0f} % busy)" for row in busy)
    return "\n".join([f"| {about} | steps/s |", "| --- | ---: |", *table, "", f"The next limit: {parts}."])
