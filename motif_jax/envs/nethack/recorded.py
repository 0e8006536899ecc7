"""Recorded games of the released agent: 64 games of 1,200 steps (recorded.npz), the same on every machine.

    python -m motif_jax.envs.nethack.recorded play LIBRARY               plays those of the profile with this library
    python -m motif_jax.envs.nethack.recorded install LIBRARY COMPILER   keeps it, if it plays the others like the wheel
    python -m motif_jax.envs.nethack.recorded pace LIBRARY SCREEN GAMES GROUPS SECONDS    prints the rate of a worker
    python -m motif_jax.envs.nethack.recorded version                    prints NLE's

`launch/engine.sh` builds libraries with a profile of the first games; the others are timed and compared.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from nle.nethack.nethack import DLPATH

from motif_jax.console import print_line
from motif_jax.envs.nethack.engine import NAME, RECORD, directory, requirements
from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS, POLICY_OBSERVATIONS, open_rows
from motif_jax.envs.nethack.world import GameSettings, GameVector
from motif_jax.envs.world import step_specs
from motif_jax.files import write_json
from motif_jax.structs import UserError
from motif_jax.system.foreign import sha256_of

RECORDED = Path(__file__).with_suffix(".npz")
GAMES = 64
PROFILED = 16  # games that the profile comes from
TURNS = 3


class Replay:
    """Some of the recorded games, which play in lock-step."""

    def __init__(
        self, library: str, games: Sequence[int], names: Iterable[str] = POLICY_OBSERVATIONS, screen: str = "terminal"
    ):
        with np.load(RECORDED) as file:
            self._actions, seed = file["actions"][list(games)].T.tolist(), int(file["seed"])
        self.steps = len(self._actions)
        counters = [itertools.count(number + 1000, 1000) for number in games]  # of each game's next episode
        settings = GameSettings(stairs_message=True, screen=screen, library=library)
        self.vector = GameVector(len(games), settings, names, seed=seed, next_episode=lambda game: next(counters[game]))
        self.vector.reset()
        specs = step_specs() | self.vector.observer.specs
        self.rows = {key: np.zeros((len(games), *spec.shape), spec.dtype) for key, spec in specs.items()}
        self._opened = open_rows(self.rows)

    def step(self, number: int) -> None:
        self.rows["terminated"][:] = self.rows["truncated"][:] = False
        self.vector.step(self._actions[number], self._opened)
        self.vector.observe(self._opened)


def play(library: str, games: slice, digest: bool = False) -> tuple[float, str]:
    """Plays recorded games in lock-step; returns CPU time per step in microseconds, and a SHA-256 of all rows.

    With `digest`, the rows have all observations, which take time to write.
    """
    numbers = range(GAMES)[games]
    replay = Replay(library, numbers, (*OBSERVATIONS, *EVENTS) if digest else POLICY_OBSERVATIONS)
    sha256 = hashlib.sha256()
    start = time.process_time()
    for step in range(replay.steps):
        replay.step(step)
        if digest:
            for key in sorted(replay.rows):
                sha256.update(replay.rows[key].tobytes())
    seconds = time.process_time() - start
    replay.vector.close()
    return 1e6 * seconds / (replay.steps * len(numbers)), sha256.hexdigest()


def pace(library: str, screen: str, games: int, groups: int, seconds: float) -> float:
    """Steps per second of a worker's games, whose groups play in turn, once a line has come from standard input."""
    numbers = [number % GAMES for number in range(games)]
    replays = [Replay(library, numbers[group::groups], screen=screen) for group in range(groups)]
    print_line("ready")
    sys.stdin.readline()
    start, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        for replay in replays:
            replay.step(steps % replay.steps)
        steps += 1
    return steps * games / passed


def install(library: Path, compiler: str) -> None:
    """Keeps a library, if it plays the recorded games like the wheel; raises UserError if it does not."""
    others = slice(PROFILED, None)
    if play(str(library), others, digest=True)[1] != play(DLPATH, others, digest=True)[1]:
        raise UserError(f"the library in {str(library)!r} does not play the recorded games like NLE's wheel: not kept")
    times = [[play(path, others)[0] for path in (str(library), DLPATH)] for _ in range(TURNS)]
    own, wheel = np.median(times, 0)
    folder = directory()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)  # written again when the library is complete
    shutil.copyfile(library, folder / f"{NAME}.new")
    os.replace(folder / f"{NAME}.new", folder / NAME)
    digest = sha256_of(folder / NAME)
    write_json(folder / RECORD, requirements() | {"sha256": digest, "compiler": compiler, "us_per_step": own})
    print_line(
        f"engine: {own:.1f} µs of CPU time per step of a player that has learnt, {wheel:.1f} with NLE's wheel "
        f"({wheel / own:.2f} times as fast; {GAMES - PROFILED} recorded games, median of {TURNS} turns); the "
        f"games are the same bit for bit. It is in {str(folder)!r}; --config.env.engine=wheel does not use it"
    )


def main(arguments: list[str]) -> None:
    """See the module docstring."""
    match arguments:
        case ["play", library]:
            print_line(json.dumps(play(library, slice(0, PROFILED))))
        case ["install", library, compiler]:
            install(Path(library), compiler)
        case ["pace", library, screen, games, groups, seconds]:
            print_line(str(pace(library, screen, int(games), int(groups), float(seconds))))
        case ["version"]:
            print_line(metadata.version("nle"))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"motif_jax: {error}")
