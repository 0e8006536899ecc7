"""The config's section collect. Nothing here loads JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import MANY_SECONDS, PATH, PATHS, Flag, Number, Tables, Text, Whole, table_of, value
from motif_jax.system.machine import usable_cores


@dataclass(frozen=True)
class Collect:
    """Pairs of moments from games, or transcripts of games."""

    dataset: str = value(
        "", PATH, "directory of a dataset in the published layout, to use instead of collecting", decides=True
    )
    follow_links: bool = value(False, Flag(), "also read arrays of `dataset` that are links to files outside it")
    collector: str = value(
        "explorer:0.8,random:0.2", Text(), "scripted players and their shares of the games", decides=True
    )
    policies: str = value(
        "", PATHS, "trained policies to play instead: WORKDIR[@STEP, @last or @all][:SHARE],...", decides=True
    )
    num_pairs: int = value(
        100_000, Whole(1, 10**12), "pairs; the paper used 500,000, but most results need 100,000", decides=True
    )
    transcripts: int = value(
        0, Whole(0, 10**9), "number of games to record as text instead of pairs; 0: collect pairs", decides=True
    )
    branch_player: str = value(
        "", Text(), "player that continues from each moment of a transcript; empty: no branches", decides=True
    )
    branches: int = value(1, Whole(1, 1000), "branches of each moment", decides=True)
    segment_length: int = value(1, Whole(1), "steps per moment", decides=True)
    keep_empty: float = value(1.0, Number(0, 1), "share of the moments without a message that are kept", decides=True)
    save_screen: bool = value(
        False, Flag(), "also save tty_chars and tty_colors, 7.7 kB per pair and step", decides=True
    )
    save_glyphs: bool = value(
        False, Flag(), "also save the map of glyphs, 6.6 kB per pair and step, for rewards that read it", decides=True
    )
    num_workers: int = value(usable_cores, Whole(), "worker processes; 0: play in this process, for debugging")
    games_per_worker: int = value(4, Whole(1), "games per worker, played in parallel")
    rollout_length: int = value(128, Whole(1), "steps per rollout")
    commit_every_s: float = value(
        20.0, Number(0.001, MANY_SECONDS), "flush interval in seconds: the most work that a kill loses"
    )
    hang_timeout_s: float = value(
        10.0, Number(0.1, MANY_SECONDS), "heartbeat timeout in seconds: a silent worker is replaced"
    )


TABLES: Tables = {"collect": table_of(Collect)}
