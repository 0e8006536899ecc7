"""Plays NetHack with PufferLib's vectoriser: random actions from this process, while other workers' games go on."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import pufferlib.emulation
import pufferlib.vector
from nethack_game import NetHack


def make_game(keys: list[int], longest: int, buf: Any = None, seed: int = 0) -> Any:
    """For PufferLib, whose processes call it."""
    return pufferlib.emulation.GymnasiumPufferEnv(env=NetHack(keys, longest), buf=buf, seed=seed)


def main(task: dict) -> None:
    """Plays; a batch has the games of one worker."""
    batch, rng = task["games"] // task["workers"], np.random.default_rng(0)
    games = pufferlib.vector.make(
        make_game, env_args=[task["keys"], task["longest"]], num_envs=task["games"], num_workers=task["workers"],
        batch_size=batch, backend=pufferlib.vector.Multiprocessing, overwork=True,
    )  # fmt: skip
    games.async_reset(0)
    count, start = -task["warmup"], 0.0
    while not start or time.perf_counter() - start < task["seconds"]:
        games.recv()
        games.send(rng.integers(len(task["keys"]), size=batch))
        count += batch
        if count >= 0 and not start:
            count, start = 0, time.perf_counter()
    rate = count / (time.perf_counter() - start)
    games.close()
    print(json.dumps({"rate": rate}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
