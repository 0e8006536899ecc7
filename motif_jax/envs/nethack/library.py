"""The library of NetHack that games load: the wheel's, or one that `launch/engine.sh` has built for this machine.

A built library is NLE's own sources, compiled for this processor with a profile of a player that has learnt. It plays
the same games bit for bit. It lies beside compiled programs, in `$XDG_CACHE_HOME/motif_jax/engine-<kind of machine>`,
with a record of what it was built from; one that is damaged or that belongs to another machine or NLE is not loaded.

    python -m motif_jax.envs.nethack.library play LIBRARY        plays the recorded games of the profile
    python -m motif_jax.envs.nethack.library install LIBRARY COMPILER    keeps it, if it plays like the wheel

The recorded games are of the released agent: 64 games of 1,200 steps (recorded.npz). Those of the profile are others
than those that are timed and compared.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from nle.nethack.nethack import DLPATH

from motif_jax.console import print_line
from motif_jax.envs.nethack.game_settings import WHEEL, GameSettings
from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS, POLICY_OBSERVATIONS, open_rows
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.world import step_specs
from motif_jax.files import read_json, write_json
from motif_jax.structs import UserError
from motif_jax.system.jax_start import cache_directory, kind_of_machine

NAME, RECORD, RECORDED = "libnethack.so", "build.json", Path(__file__).with_name("recorded.npz")
RECIPE = 1  # the number of `launch/engine.sh` and of what it compiles; libraries of other numbers are built anew
PROFILED = 16  # recorded games that the profile comes from; the others are timed and compared
TURNS = 3


class Found(NamedTuple):
    """The library that games load."""

    path: str
    about: str  # which one, where a library was built; "" otherwise


def directory() -> Path:
    """Where this machine's library lies."""
    return cache_directory(os.environ, "engine")


def made_for() -> dict[str, Any]:
    """What a library must have been built for, to be loaded here."""
    with open(DLPATH, "rb") as wheel:
        digest = hashlib.file_digest(wheel, "sha256").hexdigest()
    return {"nle": metadata.version("nle"), "wheel": digest, "machine": kind_of_machine(), "recipe": RECIPE}


@functools.cache
def find_library(engine: str) -> Found:
    """The library for this value of `--config.env.engine`. A built one is read as a file from outside is."""
    folder = directory()
    if engine == WHEEL or not (folder / RECORD).exists():
        return Found(DLPATH, "")
    try:
        built = read_json(folder / RECORD)
        if other := [name for name, value in made_for().items() if built.get(name) != value]:
            raise ValueError(f"it was built for another {other[0]}")
        with open(folder / NAME, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != built["sha256"]:
                raise ValueError("it is damaged")
    except (OSError, ValueError, KeyError) as error:
        why = f"NetHack plays with NLE's wheel; its library in {str(folder)!r} is not used: {error}"
        return Found(DLPATH, f"{why} (bash launch/engine.sh builds it anew)")
    return Found(str(folder / NAME), f"NetHack plays with the library that was built for this machine, {folder / NAME}")


# ---- the recorded games


def recorded(games: slice) -> tuple[np.ndarray, int, int]:
    """Actions of the released agent, [games, 1200] uint8; the number of the first game, and the seed of all."""
    with np.load(RECORDED) as file:
        return file["actions"][games], range(*games.indices(len(file["actions"]))).start, int(file["seed"])


def play(library: str, games: slice, digest: bool = False, screen: str = "terminal") -> tuple[float, str]:
    """Plays recorded games in lock-step. CPU time per step in microseconds; and the SHA-256 of every row of every step.

    The digest covers all observations, which take time to write.
    """
    actions, first, seed = recorded(games)
    settings = GameSettings(stairs_message=True, screen=screen, library=library)
    numbers = list(range(first, first + len(actions)))  # of each game's next episode

    def next_episode(game: int) -> int:
        numbers[game] += 1000
        return numbers[game]

    names = (*OBSERVATIONS, *EVENTS) if digest else POLICY_OBSERVATIONS
    vector = GameVector(len(actions), settings, names, seed=seed, next_episode=next_episode)
    vector.reset()
    specs = step_specs() | vector.observer.specs
    rows = {key: np.zeros((len(actions), *spec.shape), spec.dtype) for key, spec in specs.items()}
    opened, found = open_rows(rows), hashlib.sha256()
    start = time.process_time()
    for row in actions.T.tolist():
        rows["terminated"][:] = rows["truncated"][:] = False
        vector.step(row, opened)
        vector.observe(opened)
        if digest:
            for key in sorted(rows):
                found.update(rows[key].tobytes())
    seconds = time.process_time() - start
    vector.close()
    return 1e6 * seconds / actions.size, found.hexdigest()


# ---- installing


def install(library: Path, compiler: str) -> None:
    """Keeps a library, if it plays the recorded games like the wheel; raises UserError if it does not."""
    others = slice(PROFILED, None)
    if play(str(library), others, digest=True)[1] != play(DLPATH, others, digest=True)[1]:
        raise UserError(f"the library in {str(library)!r} does not play the recorded games like NLE's wheel: not kept")
    times = [[play(one, others)[0] for one in (str(library), DLPATH)] for _ in range(TURNS)]
    own, wheel = np.median(times, 0)
    folder = directory()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)  # it comes back when the library is whole
    shutil.copyfile(library, folder / f"{NAME}.new")
    os.replace(folder / f"{NAME}.new", folder / NAME)
    digest = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    write_json(folder / RECORD, made_for() | {"sha256": digest, "compiler": compiler, "us_per_step": own})
    print_line(
        f"engine: {own:.1f} µs of CPU time per step of a player that has learnt, {wheel:.1f} with NLE's wheel "
        f"({wheel / own:.2f} times as fast; {len(recorded(others)[0])} recorded games, median of {TURNS} turns); the "
        f"games are the same bit for bit. It is in {str(folder)!r}; --config.env.engine=wheel does not use it"
    )


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    match arguments:
        case ["play", library]:
            print(json.dumps(play(library, slice(0, PROFILED))))
        case ["install", library, compiler]:
            install(Path(library), compiler)
        case ["version"]:
            print(metadata.version("nle"))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"motif_jax: {error}")
