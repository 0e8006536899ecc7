"""Checks that this machine has the cores, memory and open files for the requested games."""

from __future__ import annotations

import resource

from motif_jax.structs import UserError
from motif_jax.system.machine import available_mib, usable_cores

WORKER_MIB = 60  # Python, NumPy and NLE in a process
GAME_MIB = 4  # one copy of the engine, without shared code (see envs/nethack/engine.py)
FILES_PER_GAME = 2
WORKERS_PER_CORE = 8


def check_capacity(
    num_workers: int,
    games_per_worker: int,
    groups: int = 1,
    shared_bytes: int = 0,
    flag: str = "--config.collect",
    *,
    engine: bool,
) -> None:
    """Raises UserError if this machine cannot run these workers and games, with the shared memory of their rollouts.

    `flag`: section of the config, for errors. `engine`: whether each game has a copy of NetHack's engine; other games
    count as free.
    """
    if games_per_worker % groups:
        flags = f"{flag}.games_per_worker" + (", .groups" if flag == "--config.policy" else "")
        raise UserError(f"games_per_worker must be a multiple of {groups} groups, not {games_per_worker} ({flags})")
    cores = usable_cores()
    if num_workers > WORKERS_PER_CORE * cores:
        raise UserError(
            f"{num_workers} workers are too many for {cores} cores, at most {WORKERS_PER_CORE} each "
            f"({flag}.num_workers)"
        )
    needed = max(num_workers, 1) * (WORKER_MIB + games_per_worker * GAME_MIB * engine) + shared_bytes // 2**20
    available = available_mib()
    if needed > available:
        raise UserError(
            f"{num_workers} workers with {games_per_worker} games each need about {needed:,} MiB, but {available:,} "
            f"MiB are available ({flag}.num_workers, .games_per_worker, .rollout_length)"
        )
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if engine and files != resource.RLIM_INFINITY and games_per_worker * FILES_PER_GAME + 32 > files:
        raise UserError(
            f"{games_per_worker} games in a process need more than the {files} files that it may open "
            f"({flag}.games_per_worker, or `ulimit -n`)"
        )
