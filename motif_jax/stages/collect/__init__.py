"""The stage collect: scripted players or trained policies play, and pairs of moments from their games are a dataset.

With `--config.collect.policies=PATH,...` trained policies play (policies/mixture.py) instead of the scripted
`collector`. With `--config.collect.dataset=DIR` a dataset in the published layout is checked and used as it is
(published.py). With `--config.collect.transcripts=N` games are recorded as text (transcripts.py).
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

import motif_jax
from motif_jax.actors.capacity import check_capacity
from motif_jax.actors.players import parse_scripted
from motif_jax.actors.pool import ActorPool
from motif_jax.config.table import Tables, check_values
from motif_jax.console import clean, print_line
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.world import World
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.envs.worlds import check_world, make_world, title
from motif_jax.files import write_config
from motif_jax.policies.choice import parse_mixture
from motif_jax.preferences.pairs import FinishedEpisode
from motif_jax.preferences.store import DATA, PairDataset
from motif_jax.preferences.writer import PairWriter, is_tidy, tidy
from motif_jax.run import SECTIONS
from motif_jax.stages import EXPERIMENT, Stage, with_result
from motif_jax.stages.collect import transcripts
from motif_jax.stages.collect.episodes import play_in_order
from motif_jax.stages.collect.page import report_pairs
from motif_jax.stages.collect.published import adopt
from motif_jax.stages.collect.section import TABLES
from motif_jax.structs import ArraySpec, Interrupted, UserError
from motif_jax.system.metrics import Progress
from motif_jax.system.startup import say

READS: Tables = EXPERIMENT | {"env": ENV} | TABLES
STEPS_WITHOUT_A_MOMENT = 2_000_000  # after these, the settings must be wrong


def artefacts(workdir: Path) -> list[Path]:
    """The directories of the dataset, finished or in progress, and of transcripts."""
    partial = with_result(workdir / "dataset.partial", "progress.json")
    return [workdir / "dataset", *partial, workdir / transcripts.FOLDER]


def loads_jax(config: ConfigDict) -> bool:
    """Whether the stage loads JAX: only if trained policies play."""
    return bool(config.collect.policies) and not config.collect.dataset


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the dataset is finished, without temporary files, and reported, or the transcripts are."""
    if config.collect.transcripts:
        return transcripts.is_complete(workdir)
    told = (workdir / SECTIONS / "collect.json").exists()
    return is_named(workdir) and is_tidy(workdir / "dataset") and told


def is_named(workdir: Path) -> bool:
    """Whether the dataset is finished: its directory has the final name."""
    return (workdir / "dataset" / "dataset.json").is_file()


def run(config: ConfigDict, workdir: Path) -> None:
    """Collects pairs, or takes a published dataset, and writes `workdir/dataset`; or records transcripts."""
    if config.collect.transcripts:
        transcripts.collect(config, workdir)
        return
    if is_named(workdir):  # an earlier run was killed before it tidied up
        tidy(workdir / "dataset")
        report_pairs(workdir)
        return
    if (workdir / "dataset").exists():
        raise UserError(
            f"{str(workdir / 'dataset')!r} is there already and was not made by this stage: move it away, or use it "
            "with --config.collect.dataset and another --workdir"
        )
    if config.collect.dataset:
        dataset = adopt(config, workdir / "dataset")
        names = ", ".join(dataset.preference_names()) or "no annotations"
        print_line(f"collect: uses {clean(config.collect.dataset)} as it is: {describe(dataset)}; {names}")
        report_pairs(workdir)
        return

    # ---- observations
    world = make_world(config.env)
    keys = recorded_keys(config, world)
    observations = tuple(f"event_{key}" for key in keys)

    # ---- players
    mixture = None
    if config.collect.policies:  # only then is JAX loaded
        from motif_jax.policies.mixture import Mixture

        mixture = Mixture(config, workdir / "dataset.partial")

    # ---- start or resume
    writer = PairWriter(
        workdir / "dataset",
        num_pairs=config.collect.num_pairs,
        length=config.collect.segment_length,
        specs={key: world.specs[f"event_{key}"] for key in keys} | {"rewards": ArraySpec((), "float32")},
        figures=world.figures,
        character=getattr(world, "character", ""),
        seed=config.seed,
        keep_empty=config.collect.keep_empty,
    )
    write_config(writer.partial, config)
    if mixture:
        writer.progress["policies"] = mixture.facts()  # a resumed run uses the same checkpoints
    if writer.moments:
        print_line(f"collect: going on after {writer.moments // 2:,} of {config.collect.num_pairs:,} pairs")

    # ---- play
    start, first_steps = time.monotonic(), writer.progress["steps"]
    losses: dict[str, Any] = {}
    progress = Progress("collect", config.collect.num_pairs, "pairs", writer.moments // 2)
    if not writer.full:
        with (
            saved_if_stopped(writer),
            ActorPool(
                config.env.to_dict(),
                (*observations, *(mixture.reads if mixture else ())),
                num_workers=config.collect.num_workers,
                games_per_worker=config.collect.games_per_worker,
                rollout_length=config.collect.rollout_length,
                player="" if mixture else config.collect.collector,
                groups=mixture.groups if mixture else 1,
                seed=config.seed,
                stream=SeedStream.COLLECT,
                first_episode=writer.progress["next_episode"],
                hang_timeout_s=config.collect.hang_timeout_s,
            ) as pool,
        ):
            committed = time.monotonic()
            arrays = {key: f"event_{key}" for key in keys} | {"rewards": "reward"}
            for ready in play_in_order(pool, mixture, arrays, writer.progress["next_episode"]):
                for episode in ready:
                    if writer.full:
                        break
                    if isinstance(episode, FinishedEpisode):
                        writer.add(episode)
                    else:
                        writer.skip(episode)
                if time.monotonic() - committed > config.collect.commit_every_s:
                    writer.commit()
                    committed = time.monotonic()
                if not writer.moments and writer.progress["steps"] > STEPS_WITHOUT_A_MOMENT:
                    raise UserError(
                        f"in {STEPS_WITHOUT_A_MOMENT:,} steps, no episode had {config.collect.segment_length} steps to "
                        "keep (--config.collect.segment_length, .keep_empty)"
                    )
                rate = (writer.progress["steps"] - first_steps) / (time.monotonic() - start)
                progress.update(writer.moments // 2, steps=f"{writer.progress['steps']:,} ({rate:,.0f}/s)")
                if writer.full:
                    break
            losses = {
                "worker_restarts": pool.restarts,
                "dropped_steps": pool.dropped_steps,
                "seconds_waiting_for_workers": round(pool.timers.seconds.get("wait_for_workers", 0.0), 1),
                "seconds_workers_waited": round(pool.worker_wait_s, 1),
            }
    progress.close()

    # ---- results
    played_s = time.monotonic() - start
    steps = writer.progress["steps"] - first_steps
    dataset = writer.finish(
        {
            "collector": "policies" if mixture else config.collect.collector,
            "task": title(config.env),
            "seed": config.seed,
            "keep_empty": config.collect.keep_empty,
            "versions": {"motif_jax": motif_jax.__version__, "numpy": np.__version__}
            | {name: metadata.version(name) for name in getattr(world, "packages", ())},
        }
        | ({"policies": mixture.facts()} if mixture else {}),
        {
            "seconds": round(played_s, 1),
            "steps_per_s": round(steps / played_s),
            "num_workers": config.collect.num_workers,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        }
        | losses
        | ({"groups_of_policies": mixture.counts} if mixture else {}),
    )
    report_pairs(workdir)
    print_line(f"collect: {describe(dataset)}; {steps:,} steps in {played_s:,.0f} s ({steps / played_s:,.0f} steps/s)")


@contextlib.contextmanager
def saved_if_stopped(writer: PairWriter) -> Iterator[None]:
    """Saves the collected pairs if a signal ends the program within."""
    try:
        yield
    except Interrupted:
        if writer.moments:
            say("saving the pairs that were collected")
        writer.commit()
        raise


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section = config.collect
    if section.dataset:
        return
    world = check_world(config.env)
    if section.transcripts:
        transcripts.check(config, world)
        return
    if section.policies:
        parse_mixture(section.policies, "--config.collect.policies")
    else:
        parse_scripted(section.collector, world)
    recorded_keys(config, world)
    check_capacity(section.num_workers, section.games_per_worker)
    if section.segment_length > config.env.max_episode_steps:
        raise UserError(
            f"no episode has {section.segment_length} steps, as --config.env.max_episode_steps is "
            f"{config.env.max_episode_steps} (--config.collect.segment_length)"
        )


def recorded_keys(config: ConfigDict, world: World) -> list[str]:
    """The observations that the dataset keeps of a moment; raises UserError if it cannot keep one of them."""
    more = {"save_screen": ("tty_chars", "tty_colors"), "save_glyphs": ("glyphs",)}
    keys = list(world.pairs)
    for flag, wanted in more.items():
        if config.collect[flag]:
            keys += [key for key in wanted if key not in keys]
            if missing := [key for key in wanted if f"event_{key}" not in world.specs]:
                raise UserError(
                    f"the world {world.name!r} has no observation 'event_{missing[0]}' (--config.collect.{flag})"
                )
    for key in keys:
        spec = world.specs.get(f"event_{key}")
        shape, kinds = DATA.get(key, ((), ""))
        if spec is None or spec.shape != shape or np.dtype(spec.dtype).kind not in kinds:
            raise UserError(
                f"a dataset cannot keep {key!r}, which the world {world.name!r} lists in `pairs`: it keeps "
                f"{', '.join(name for name in DATA if name != 'rewards')}, in NetHack's format (--config.env.world)"
            )
    return keys


def describe(dataset: PairDataset) -> str:
    """A line about a dataset: the numbers of pairs and messages, and the share of pairs with equal messages."""
    table, ids = dataset.captions()
    same = float((ids[:, 0] == ids[:, 1]).all(-1).mean())
    return (
        f"{len(dataset):,} pairs of {dataset.length} step{'s' * (dataset.length > 1)}, {len(table):,} distinct "
        f"messages, {same:.0%} of the pairs say the same on both sides"
    )


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "env", "collect"),
    check=check,
    is_complete=is_complete,
    run=run,
    writes="--config.collect.num_pairs, .save_screen, .save_glyphs",
    memory="--config.collect.num_workers, .games_per_worker, .rollout_length",
    artefacts=artefacts,
    loads_jax=loads_jax,
)
