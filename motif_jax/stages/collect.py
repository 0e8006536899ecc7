"""Collect: scripted players play NetHack, and pairs of moments from their games become a dataset.

With `--config.collect.dataset=DIR` nothing is played: a dataset in the published layout is checked and taken as it is.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

import motif_jax
from motif_jax.actors.capacity import check_capacity
from motif_jax.actors.layout import Full
from motif_jax.actors.players import parse_players
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.seeding import Stream
from motif_jax.envs.vector import GameSettings
from motif_jax.files import write_config, write_json
from motif_jax.metrics import Progress
from motif_jax.preferences.pairs import Episode
from motif_jax.preferences.store import PairDataset
from motif_jax.preferences.writer import PairWriter
from motif_jax.structs import EpisodeInfo, UserError

MATERIAL = (
    "seed",
    "env",
    "collect.dataset",
    "collect.collector",
    "collect.num_pairs",
    "collect.segment_length",
    "collect.keep_empty",
    "collect.save_screen",
    "collect.save_glyphs",
)
MAX_WAITING_BYTES = 512 * 2**20  # of finished episodes that wait for an earlier one
STEPS_WITHOUT_A_MOMENT = 2_000_000  # after which something must be wrong


def artefacts(workdir: Path) -> list[Path]:
    """The dataset, finished or in the making."""
    return [workdir / "dataset", workdir / "dataset.partial"]


def shared(config: ConfigDict) -> bool:
    """No: one job at a time."""
    return False


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the dataset has its name."""
    return (workdir / "dataset" / "dataset.json").is_file()


def run(config: ConfigDict, workdir: Path) -> None:
    """Makes `workdir/dataset`."""
    if (workdir / "dataset").exists():
        raise UserError(
            f"{str(workdir / 'dataset')!r} is there already and was not made by this stage: move it away, or use it "
            f"with --config.collect.dataset and another --workdir"
        )
    if config.collect.dataset:
        adopt(config, workdir / "dataset")
        return

    # ---- what is recorded
    keys = ["message", "blstats"]
    if config.collect.save_screen:
        keys += ["tty_chars", "tty_colors"]
    if config.collect.save_glyphs:
        keys.append("glyphs")
    observations = tuple(f"event_{key}" for key in keys)

    # ---- what was already recorded
    writer = PairWriter(
        workdir / "dataset",
        num_pairs=config.collect.num_pairs,
        length=config.collect.segment_length,
        keys=(*keys, "rewards"),
        seed=config.seed,
        keep_empty=config.collect.keep_empty,
    )
    write_config(writer.partial, config)
    if writer.moments:
        print(f"collect: going on after {writer.moments // 2:,} of {config.collect.num_pairs:,} pairs")

    # ---- play
    start, first_steps = time.monotonic(), writer.progress["steps"]
    losses: dict[str, float] = {}
    progress = Progress("collect", config.collect.num_pairs, "pairs", writer.moments // 2)
    if not writer.full:
        with ActorPool(
            GameSettings(**config.env),
            observations,
            num_workers=config.collect.num_workers,
            games_per_worker=config.collect.games_per_worker,
            rollout_length=config.collect.rollout_length,
            player=config.collect.collector,
            seed=config.seed,
            stream=Stream.COLLECT,
            first_episode=writer.progress["next_episode"],
            hang_timeout_s=config.collect.hang_timeout_s,
        ) as pool:
            episodes = EpisodeQueue(writer.progress["next_episode"])
            committed = time.monotonic()
            held: list[Full] = []
            while not writer.full:
                for full in pool.poll(0.2)[1]:
                    episodes.take(pool, full, keys)
                    held.append(full)
                # Memory stays bounded when one game keeps all others waiting: only its group gets its slots back.
                kept, held = held, []
                for full in kept:
                    if episodes.waiting_bytes < MAX_WAITING_BYTES or pool.owes(full, episodes.number):
                        pool.release(full)
                    else:
                        held.append(full)
                while not writer.full and (ready := episodes.next(pool.given_up)) is not None:
                    if isinstance(ready, Episode):
                        writer.add(ready, config.env.character)
                    else:
                        writer.skip(ready)
                if time.monotonic() - committed > config.collect.commit_every_s:
                    writer.commit()
                    committed = time.monotonic()
                if not writer.moments and writer.progress["steps"] > STEPS_WITHOUT_A_MOMENT:
                    raise UserError(
                        f"no episode in {STEPS_WITHOUT_A_MOMENT:,} steps had {config.collect.segment_length} steps "
                        "with anything to keep (--config.collect.segment_length, .keep_empty)"
                    )
                rate = (writer.progress["steps"] - first_steps) / (time.monotonic() - start)
                progress.update(writer.moments // 2, steps=f"{writer.progress['steps']:,} ({rate:,.0f}/s)")
            losses = {
                "worker_restarts": pool.restarts,
                "dropped_steps": pool.dropped_steps,
                "seconds_waiting_for_workers": round(pool.timers.seconds.get("wait_for_workers", 0.0), 1),
                "seconds_workers_waited": round(pool.worker_wait_s, 1),
            }
    progress.close()

    # ---- the rest
    played_s = time.monotonic() - start
    dataset = writer.finish(
        {
            "collector": config.collect.collector,
            "task": config.env.task,
            "seed": config.seed,
            "keep_empty": config.collect.keep_empty,
            "versions": {"motif_jax": motif_jax.__version__, "numpy": np.__version__, "nle": _nle_version()},
        }
    )
    steps = writer.progress["steps"] - first_steps
    write_json(
        dataset.path / "run.json",
        {
            "seconds": round(played_s, 1),
            "steps_per_s": round(steps / played_s),
            "num_workers": config.collect.num_workers,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        }
        | losses,
    )
    print(f"collect: {describe(dataset)}; {steps:,} steps in {played_s:,.0f} s ({steps / played_s:,.0f} steps/s)")


def check(config: ConfigDict) -> None:
    """Refuses values that cannot work, before anything is started."""
    section = config.collect
    if section.dataset:
        return
    GameSettings(**config.env).check()
    parse_players(section.collector)
    check_capacity(section.num_workers, section.games_per_worker)
    for name in ("num_pairs", "segment_length", "rollout_length"):
        if section[name] < 1:
            raise UserError(f"{name} must be at least 1, not {section[name]} (--config.collect.{name})")
    if section.segment_length > config.env.max_episode_steps:
        raise UserError(
            f"no episode has {section.segment_length} steps, as --config.env.max_episode_steps is "
            f"{config.env.max_episode_steps} (--config.collect.segment_length)"
        )
    if config.seed < 0:
        raise UserError(f"seed must not be negative, not {config.seed} (--config.seed)")
    if not 0 <= section.keep_empty <= 1:
        raise UserError(f"keep_empty must be between 0 and 1, not {section.keep_empty} (--config.collect.keep_empty)")
    for name in ("hang_timeout_s", "commit_every_s"):
        if section[name] <= 0:
            raise UserError(f"{name} must be positive, not {section[name]} (--config.collect.{name})")


class EpisodeQueue:
    """Puts rollouts together to episodes, and hands these out in the order of their numbers."""

    def __init__(self, first: int):
        self.number = first  # of the episode that comes next
        self.waiting_bytes = 0
        self._open: dict[tuple[int, int, int], dict[str, list[np.ndarray]]] = {}  # by worker, group, game
        self._done: dict[int, Episode] = {}

    def take(self, pool: ActorPool, full: Full, keys: list[str]) -> None:
        """Copies a rollout's steps to the episodes that they belong to."""
        rows = {key: pool.rollouts[f"event_{key}"][full.slot] for key in keys}  # [T, E, ...]
        rows["rewards"] = pool.rollouts["reward"][full.slot]
        first = pool.rollouts["first"][full.slot]  # [T + 1, E]
        start = [0] * first.shape[1]
        for game, begins in enumerate(first[0]):
            if begins:  # what was there is of an episode that is played again, because its worker died
                self._open[full.worker, full.group, game] = {key: [] for key in rows}
        for step, game, info in pool.ended(full):
            parts = self._open[full.worker, full.group, game]
            for key, array in rows.items():
                parts[key].append(array[start[game] : step + 1, game].copy())
            if info.episode >= self.number and info.episode not in self._done:
                self._done[info.episode] = _join(info, parts)
                self.waiting_bytes += _size(self._done[info.episode])
            self._open[full.worker, full.group, game] = {key: [] for key in rows}
            start[game] = step + 1
        for game, begin in enumerate(start):
            for key, array in rows.items():
                self._open[full.worker, full.group, game][key].append(array[begin:, game].copy())

    def next(self, given_up: list[int]) -> Episode | int | None:
        """The next episode, or its number if it was given up, or None if it is not finished."""
        number = self.number
        found: Episode | int | None = self._done.pop(number, None)
        if isinstance(found, Episode):
            self.waiting_bytes -= _size(found)
        elif number in given_up:
            found = number
        if found is not None:
            self.number += 1
        return found


def _join(info: EpisodeInfo, parts: dict[str, list[np.ndarray]]) -> Episode:
    return Episode(info, {key: np.concatenate(chunks) for key, chunks in parts.items()})


def _size(episode: Episode) -> int:
    return sum(array.nbytes for array in episode.steps.values())


def adopt(config: ConfigDict, target: Path) -> None:
    """Takes a dataset as it is: links to its arrays, copies of its annotations, an index of our own."""
    source = Path(config.collect.dataset)
    dataset = PairDataset(source, require=("message",))
    for name in dataset.preference_names():
        dataset.preference(name)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for folder in ("data", "info"):
        (partial / folder).mkdir(parents=True)
        for file in (source / folder).glob("*.npy"):
            (partial / folder / file.name).symlink_to(file.resolve())
    if (source / "preference").is_dir():
        shutil.copytree(source / "preference", partial / "preference")
    table, _ = PairDataset(partial).captions()
    facts: dict[str, Any] = {"source": str(source.resolve()), "num_pairs": len(dataset)}
    facts |= {"segment_length": dataset.length, "distinct_captions": len(table)}
    write_json(partial / "dataset.json", facts)
    write_config(partial, config)
    partial.replace(target)
    names = ", ".join(dataset.preference_names()) or "no annotations"
    print(f"collect: took {source} as it is: {describe(PairDataset(target))}; {names}")


def describe(dataset: PairDataset) -> str:
    """A dataset in a few words."""
    table, ids = dataset.captions()
    same = float((ids[:, 0] == ids[:, 1]).all(-1).mean())
    return (
        f"{len(dataset):,} pairs of {dataset.length} step{'s' * (dataset.length > 1)}, {len(table):,} distinct "
        f"messages, {same:.0%} of the pairs say the same on both sides"
    )


def _nle_version() -> str:
    from nle.version import __version__

    return __version__
