"""Evaluation's games: a policy or a scripted player plays the episodes that count; their learnt reward is added up."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.handoff import Arrays, make_batch
from motif_jax.actors.inference import answer
from motif_jax.actors.pool import ActorPool
from motif_jax.checkpoint import find_checkpoints
from motif_jax.console import print_line
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.settings import make_world
from motif_jax.episodes.pieces import Pieces, Steps
from motif_jax.episodes.playback import EpisodeEvents, EventCounter, Track, figures_of
from motif_jax.metrics import Progress, Timers
from motif_jax.policies.choice import list_steps, load
from motif_jax.policies.model import Model, read_policy
from motif_jax.policies.player import PolicyPlayer
from motif_jax.rewards.intrinsic import Mix, intrinsic_reward
from motif_jax.rewards.learnt import Reward, load_reward
from motif_jax.rewards.source import RewardSource, make_mix, reward_checksum
from motif_jax.stages.evaluate.contenders import FLAG, Contender
from motif_jax.stages.evaluate.summary import rules_of
from motif_jax.structs import EpisodeInfo, UserError

GROUPS = 2  # per worker: one plays while the other waits for actions
ROLLOUT = 64  # steps that are looked at together
KEEP_EVERY_S = 20.0  # seconds between two saves: a killed run loses no more play than that

Row = dict[str, Any]


class Playing(NamedTuple):
    """A loaded player with its learnt reward, and checksums that show whether they are the same as last time."""

    name: str
    scripted: str  # name of a scripted player, or "" for the model
    model: Model | None
    greedy: bool
    pay: RewardSource | None
    about: dict[str, Any]  # checksums of parameters, and of the learnt reward with all its settings; its goal


def make_playing(config: ConfigDict, workdir: Path, contender: Contender, flag: str) -> Playing:
    """Loads the policy and the reward that its episodes are valued by: its own, else that of the workdir."""
    if not contender.path:
        pay = pay_of_workdir(config, workdir)
        return Playing(contender.name, contender.name, None, False, pay, {"parameters": None} | about_pay(pay))
    path = str(workdir) if contender.path == "." else contender.path
    model, facts, reward = load(path, contender.step, make_world(config.env), flag)
    pay = pay_of_policy(facts, reward) or pay_of_workdir(config, workdir)
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(model.params):
        found.update(np.asarray(leaf).tobytes())
    tell_of_other_games(contender.name, facts["config"].get("env", {}), config)
    return Playing(contender.name, "", model, contender.greedy, pay, {"parameters": found.hexdigest()} | about_pay(pay))


def tell_of_other_games(name: str, trained: dict[str, Any], config: ConfigDict) -> None:
    """Prints a line if a policy plays other games than it was trained on; no error, as this may be intended."""
    now = config.env.to_dict()
    keys = [key for key in sorted(now) if trained.get(key, now[key]) != now[key]]
    other = [f"{key} = {trained[key]!r}, not {now[key]!r}" for key in keys]
    if other:
        print_line(f"evaluate: {name} was trained with {'; '.join(other)} (--config.env)")


def pay_of_policy(facts: dict[str, Any], reward: Reward | None) -> RewardSource | None:
    """The learnt reward with the settings of a policy's training; None for a policy trained without one."""
    if reward is None:
        return None
    return RewardSource(reward, Mix(**facts["reward"]["mix"]), facts["config"]["policy"]["reference_alignment"])


def pay_of_workdir(config: ConfigDict, workdir: Path) -> RewardSource | None:
    """The learnt reward of the workdir: its policy's, else as this config sets it; None if there is no reward."""
    try:
        directory, steps = list_steps(str(workdir / "policy"), FLAG)
    except UserError:  # no policy
        steps = []
    if steps:
        _, facts, reward = read_policy(directory, str(steps[-1]))
        if pay := pay_of_policy(facts, reward):
            return pay
    section = config.policy
    if not section.reward_dir:
        try:
            find_checkpoints(workdir / "reward")
        except UserError:
            return None
    reward = load_reward(section.reward_dir or workdir, section.reward_checkpoint)
    return RewardSource(reward, make_mix(config, reward), section.reference_alignment)


def about_pay(pay: RewardSource | None) -> dict[str, Any]:
    """Checksum, goal, threshold and exponent of the learnt reward; equal checksums mean equal rewards."""
    if pay is None:
        return dict.fromkeys(("reward", "goal", "threshold", "count_exponent"))
    parts = [reward_checksum(pay.reward), pay.mix.threshold, pay.mix.count_exponent, *pay.observations]
    return {
        "reward": hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
        "goal": pay.reward.facts.get("config", {}).get("annotate", {}).get("goal"),
        "threshold": float(pay.mix.threshold) if math.isfinite(pay.mix.threshold) else None,
        "count_exponent": pay.mix.count_exponent,
    }


def play(
    config: ConfigDict,
    playing: Playing,
    wanted: set[int],
    rows: dict[int, Row],
    tracks: dict[int, Track],
    keep: Callable[[], None],
) -> list[int]:
    """Plays the wanted episodes and adds their results to `rows` and `tracks`.

    Args:
      config: of the experiment.
      playing: who plays.
      wanted: numbers of episodes.
      rows, tracks: get the figures and the steps of each episode, by its number.
      keep: is called about every KEEP_EVERY_S seconds, to write both to disk.

    Returns:
      Numbers of the episodes that no worker survived; they have no row.
    """
    section = config.evaluate
    missing = set(wanted)
    if not missing:
        return []
    # No more games than episodes: they would only be in the way.
    workers = min(max(section.num_workers, 1), len(missing))
    games = min(section.games_per_worker, -(-len(missing) // workers))
    groups = min(GROUPS, games)
    games -= games % groups
    policy = None
    if playing.model:
        seed = config.seed + min(missing)
        policy = PolicyPlayer(playing.model, workers * games, games // groups, seed, playing.greedy)
    observations = {*(policy.reads if policy else ()), *(playing.pay.observations if playing.pay else ())}
    env, pieces, timers = config.env.to_dict(), Pieces(), Timers()
    with (
        EventCounter(env, config.seed, rules_of(make_world(env)).happenings()) as counter,
        ActorPool(
            env,
            tuple(sorted(observations)),
            num_workers=min(section.num_workers, workers),
            games_per_worker=games,
            rollout_length=ROLLOUT,
            player=playing.scripted,
            groups=groups,
            outputs=policy.outputs if policy else None,
            starts=policy.starts if policy else None,
            seed=config.seed,
            stream=SeedStream.EVALUATE,
            first_episode=min(missing),
            hang_timeout_s=section.hang_timeout_s,
            flag="--config.evaluate",
        ) as pool,
    ):
        done, figures = len(rows), tuple(pool.world.figures)
        progress = Progress(f"evaluate {playing.name}", done + len(missing), "episodes", done)
        kept = time.monotonic()
        while not missing <= set(pool.given_up):
            requests, fulls = pool.poll(0.2)
            if policy:
                answer(pool, requests, policy)
            if fulls:
                batch = make_batch(pool, fulls, lambda arrays: as_steps(arrays, playing.pay), timers)
                for number, (full, ended) in enumerate(zip(batch.fulls, batch.episodes, strict=True)):
                    size = pool.layout.group_size
                    columns = slice(number * size, (number + 1) * size)
                    part = {key: array[:, columns] for key, array in batch.arrays.items()}
                    for info, steps in pieces.take(full, part, part.pop("first")[0], ended):
                        if info.episode in missing:
                            missing.remove(info.episode)
                            tracks[info.episode] = Track(**steps)
                            row = as_row(info, figures, tracks[info.episode], counter, playing.pay is not None)
                            rows[info.episode] = row
            progress.update(len(rows))
            if time.monotonic() - kept > KEEP_EVERY_S:
                keep()
                kept = time.monotonic()
        progress.close()
    return sorted(missing)


def as_steps(arrays: Arrays, pay: RewardSource | None) -> Steps:
    """The arrays of a batch that a Track keeps, [T, B] each; NaN where a value is not known."""
    action = arrays["action"]
    nothing = np.full(action.shape, np.nan, np.float32)
    steps = {"action": action, "first": arrays["first"], "value": arrays.get("value", nothing)}
    steps |= {"probability": nothing, "z": nothing, "intrinsic": nothing}
    if "logits" in arrays:
        odds = np.exp(arrays["logits"] - arrays["logits"].max(-1, keepdims=True))
        steps["probability"] = np.take_along_axis(odds, action[..., None], -1)[..., 0] / odds.sum(-1)
    if pay:
        moments = pay(arrays)
        steps["z"] = moments["z"].astype(np.float32)
        steps["intrinsic"] = np.asarray(intrinsic_reward(moments["z"], moments["counts"], pay.mix), np.float32)
    return steps


def as_row(info: EpisodeInfo, figures: Iterable[str], track: Track, counter: EventCounter, paid: bool) -> Row:
    """The values and events of one finished episode: its line of `episodes.jsonl`; `figures` are the world's."""
    events = counter.describe(info, track.action)
    row = figures_of(info, figures)
    row["intrinsic_return"] = float(track.intrinsic.sum(dtype=np.float64)) if paid else None
    return row | (events or EpisodeEvents("", None))._asdict()
