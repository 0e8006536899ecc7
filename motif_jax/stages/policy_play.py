"""Evaluation's games: a policy or a scripted player plays the episodes that count; their learnt reward is added up."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.handoff import Arrays, make_batch
from motif_jax.actors.inference import answer
from motif_jax.actors.pool import ActorPool
from motif_jax.api import Reward, find_checkpoints, load_reward
from motif_jax.envs.seeding import Stream
from motif_jax.envs.vector import GameSettings
from motif_jax.learner.update import Rollouts
from motif_jax.metrics import Progress, Timers
from motif_jax.rewards.intrinsic import Mix, intrinsic_reward
from motif_jax.stages.evaluate import FLAG, Contender
from motif_jax.stages.policy_acting import PolicyPlayer
from motif_jax.stages.policy_choice import list_steps, load
from motif_jax.stages.policy_record import Returns
from motif_jax.stages.policy_setup import Model, Pay, Placed, make_mix, read_policy, reward_checksum
from motif_jax.structs import EndStatus, EpisodeInfo, UserError

GROUPS = 2  # per worker: one plays while the other waits for actions
ROLLOUT = 64  # steps that are looked at together
KEEP_EVERY_S = 20.0  # what a kill can cost at most

Row = dict[str, Any]


class Playing(NamedTuple):
    """What is needed to play, and to tell whether it is the same as last time."""

    player: str  # scripted, or "" for the model's
    model: Model | None
    greedy: bool
    pay: Pay | None
    checksums: dict[str, str | None]  # of the parameters, and of the learnt reward with everything that decides its pay


def make_playing(config: ConfigDict, workdir: Path, contender: Contender) -> Playing:
    """Loads the policy and the reward that its episodes are valued by: its own, else that of the workdir."""
    if not contender.path:
        pay = pay_of_workdir(config, workdir)
        return Playing(contender.name, None, False, pay, {"parameters": None, "reward": checksum(pay)})
    path = str(workdir) if contender.path == "." else contender.path
    model, facts, reward = load(path, contender.step, GameSettings(**config.env), FLAG)
    pay = pay_of_policy(facts, reward) or pay_of_workdir(config, workdir)
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(model.params):
        found.update(np.asarray(leaf).tobytes())
    checksums = {"parameters": found.hexdigest(), "reward": checksum(pay)}
    return Playing("", model, contender.greedy, pay, checksums)


def pay_of_policy(facts: dict[str, Any], reward: Reward | None) -> Pay | None:
    """The learnt reward as a policy got it while it was trained."""
    if reward is None:
        return None
    return Pay(reward, Mix(**facts["reward"]["mix"]), facts["config"]["policy"]["reference_alignment"])


def pay_of_workdir(config: ConfigDict, workdir: Path) -> Pay | None:
    """As its policy got it, else as a policy that was trained with this config would; None where there is no reward."""
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
    return Pay(reward, make_mix(config, reward), section.reference_alignment)


def checksum(pay: Pay | None) -> str | None:
    """Of the reward and of what is made of it: equal ones pay alike."""
    if pay is None:
        return None
    parts = [reward_checksum(pay.reward), pay.mix.threshold, pay.mix.count_exponent, *pay.observations]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def play(config: ConfigDict, playing: Playing, rows: dict[int, Row], keep: Callable[[], None]) -> list[int]:
    """Plays until every episode that is wanted has its row.

    Args:
      config: of the experiment.
      playing: who plays.
      rows: episodes by their numbers; those that are there are not played again.
      keep: is called now and then, to write the rows down.

    Returns:
      Episodes that no worker survived, which have no row.
    """
    section = config.evaluate
    missing = {number for number in range(section.episodes) if number not in rows}
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
    returns, timers = Returns(), Timers()
    with ActorPool(
        GameSettings(**config.env),
        tuple(sorted(observations)),
        num_workers=min(section.num_workers, workers),
        games_per_worker=games,
        rollout_length=ROLLOUT,
        player=playing.player,
        groups=groups,
        outputs=policy.outputs if policy else None,
        starts=policy.starts if policy else None,
        seed=config.seed,
        stream=Stream.EVALUATE,
        first_episode=min(missing),
        hang_timeout_s=section.hang_timeout_s,
        flag="--config.evaluate",
    ) as pool:
        progress = Progress("evaluate", section.episodes, "episodes", section.episodes - len(missing))
        kept = time.monotonic()
        while not missing <= set(pool.given_up):
            requests, fulls = pool.poll(0.2)
            if policy:
                answer(pool, requests, policy)
            if fulls:
                batch = make_batch(pool, fulls, lambda arrays: value(arrays, playing.pay), timers)
                for info, intrinsic in returns.take(batch):
                    if info.episode in missing:
                        missing.remove(info.episode)
                        rows[info.episode] = as_row(info, intrinsic if playing.pay else None)
            progress.update(section.episodes - len(missing))
            if time.monotonic() - kept > KEEP_EVERY_S:
                keep()
                kept = time.monotonic()
        progress.close()
    return sorted(missing)


def value(arrays: Arrays, pay: Pay | None) -> Placed:
    """Rollouts as `Returns` wants them; nothing goes to the device."""
    moments = pay(arrays) if pay else {}
    return Placed(
        rollouts=cast(Rollouts, None),
        intrinsic=intrinsic_reward(moments["z"], moments["counts"], pay.mix) if pay else None,
        ended=arrays["terminated"] | arrays["truncated"],
        first=arrays["first"][0],
        paid_share=0.0,
    )


def as_row(info: EpisodeInfo, intrinsic: float | None) -> Row:
    """A line of `episodes.jsonl`."""
    return info._asdict() | {"end_status": EndStatus(info.end_status).name.lower(), "intrinsic_return": intrinsic}
