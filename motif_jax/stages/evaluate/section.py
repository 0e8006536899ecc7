"""The config's section evaluate. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import (
    MANY_SECONDS,
    PATH,
    PATHS,
    Flag,
    Number,
    Tables,
    Text,
    Whole,
    table_of,
    value,
)
from motif_jax.envs.protocols import CHANGED, TASK
from motif_jax.policies.decoding import TABLE as DECODING
from motif_jax.system.machine import usable_cores


@dataclass(frozen=True)
class Evaluate:
    """Evaluation of policies and scripted players."""

    policy: str = value("", PATH, "WORKDIR[@STEP] of a policy, or random or explorer; empty: of this workdir")
    beside: str = value("random", PATHS, "other players in the same games, with commas: a scripted one, WORKDIR, @STEP")
    protocol: str = value(
        TASK, Text(tuple(CHANGED)), "task: the games of env; challenge: the NetHack Challenge's, with all characters"
    )
    variations: str = value(
        "", Text(longest=4000), "more games of babyai: rewording=synonyms;level=GoToFrench+actions=french"
    )
    episodes: int = value(100, Whole(1, 1_000_000), "episodes, played to their end; they are not used in training")
    replays: str = value(
        "best,worst,liked", Text(longest=1000), "episodes to keep: best, worst, liked, longest, toughest, or numbers"
    )
    greedy: bool = value(False, Flag(), "always choose the most probable action; often worse in games of chance")
    num_workers: int = value(usable_cores, Whole(), "processes that play; 0: play in this process, for debugging")
    games_per_worker: int = value(16, Whole(1), "games that a worker plays side by side")
    hang_timeout_s: float = value(
        30.0, Number(0.1, MANY_SECONDS), "seconds without a sign of life after which a worker is replaced"
    )


TABLES: Tables = {"evaluate": table_of(Evaluate), "decoding": DECODING}
