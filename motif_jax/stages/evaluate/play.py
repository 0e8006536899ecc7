"""Plays the episodes of an evaluation with a policy or a scripted player, and adds up their rewards."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.acting import answer
from motif_jax.actors.handoff import Arrays, make_batch
from motif_jax.actors.pool import ActorPool
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import find_checkpoints
from motif_jax.envs.protocols import suffix
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.worlds import make_world
from motif_jax.episodes.pieces import Pieces, StepArrays
from motif_jax.episodes.playback import CHARGE, COLUMNS, ODDS, EpisodeEvents, EventCounter, Track, figures_of
from motif_jax.episodes.recordings import Recordings
from motif_jax.files import to_plain
from motif_jax.language.config import is_language_model
from motif_jax.policies.choice import list_steps, load
from motif_jax.policies.conversations import WritingPlayer
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.language_start import make_language_policy
from motif_jax.policies.model import Model, probabilities, read_policy
from motif_jax.policies.player import PolicyPlayer
from motif_jax.policies.text_sections import PRETRAINED, SCORE
from motif_jax.policies.writing import ValueWriter
from motif_jax.rewards.choice import LEARNT, ONLINE, SOURCES, shown_program
from motif_jax.rewards.learnt import load_reward
from motif_jax.rewards.learnt_source import NO_REWARD, LearntSource, make_mix
from motif_jax.rewards.mixtures import Weights, behaviours_of, named
from motif_jax.rewards.sources import RewardSources, Weighted, trusted_classes
from motif_jax.stages.evaluate.contenders import FLAG, Contender, behaviour_of
from motif_jax.stages.evaluate.summary import rules_of
from motif_jax.stages.evaluate.writers import Writers, load_writer, report_other_games
from motif_jax.structs import EpisodeInfo, UserError
from motif_jax.system.metrics import Progress, Timers

GROUPS = 2  # per worker: one plays while the other waits for actions
ROLLOUT = 64  # steps per rollout
ROLLOUT_WRITTEN = 4  # the same for policies that write: their games have few steps, and each takes long
FEW = 9  # with at most this many actions, the probabilities of all of them are kept
KEEP_EVERY_S = 20.0  # seconds between two saves, the most that a killed run loses
KEEP_PER_S = 20.0  # additional seconds for each second of the last save: thousands of episodes take long to write

REWARD = "reward of "  # before a source's name: the rewards of an episode's steps
TERM = "term of "  # before a program's name, ": " and the text of a term: likewise

EpisodeRow = dict[str, Any]


class LoadedPlayer(NamedTuple):
    """A loaded player with its reward sources, and checksums that show whether they have changed."""

    name: str
    scripted: str  # name of a scripted player, or "" for the model
    model: Model | None
    greedy: bool
    sources: RewardSources
    about: dict[str, Any]  # checksums of parameters, and of the reward sources with all their settings; the goal
    writer: ValueWriter | None = None  # of a policy that writes
    decoding: Decoding | None = None
    only: int | Weights | None = None  # the option or the mixture that plays alone, of a policy with options


def make_playing(
    config: ConfigDict, workdir: Path, contender: Contender, flag: str, loaded: Writers | None = None
) -> LoadedPlayer:
    """Loads the policy and its reward sources; without a learnt reward of its own it gets the workdir's.

    `loaded` keeps policies that write, with their compiled programs, for further decodings.
    """
    if contender.decoding:
        return make_writing(config, workdir, contender, flag, {} if loaded is None else loaded)
    if not contender.path:
        sources = sources_of_workdir(config, workdir)
        scripted = contender.name.removesuffix(suffix(config.evaluate.protocol))
        return LoadedPlayer(contender.name, scripted, None, False, sources, {"parameters": None} | about(sources))
    if is_language_model(contender.path):
        return make_untrained(config, workdir, contender)
    path = str(workdir) if contender.path == "." else contender.path
    model, facts, sources = load(
        path, contender.step, make_world(config.env), flag, trusted_classes(config, config.policy.network)
    )
    if left_out := sorted(facts.get("sources", {}).keys() - {one.name for one in sources}):
        print_line(
            f"evaluate: {contender.name} was trained with {', '.join(left_out)}, reward sources that this config does "
            "not name: their returns are left out (--config.policy.sources)"
        )
    if not sources.learnt:
        of_workdir = (one for one in sources_of_workdir(config, workdir) if one.name == LEARNT)
        sources = RewardSources([*of_workdir, *sources])
    report_other_games(contender.name, facts["config"].get("env", {}), config)
    checksums = {"parameters": sum_of(model)} | about(sources)
    plan = facts["model"].get("options", {})
    only = behaviour_of(contender.option, plan, flag) if contender.option else None
    names = [named(plan["names"], only)] if isinstance(only, tuple) else behaviours_of(plan)
    checksums |= {"options": names} if names else {}
    return LoadedPlayer(contender.name, "", model, contender.greedy, sources, checksums, only=only)


def make_untrained(config: ConfigDict, workdir: Path, contender: Contender) -> LoadedPlayer:
    """`make_playing` for a language model that has not played yet."""
    config = config.copy_and_resolve_references()
    config.policy.language.update({"model": contender.path, "weights": PRETRAINED, "head": SCORE, "lora_rank": 0})
    _, model = make_language_policy(config, make_world(config.env), workdir, learns=False)
    sources = sources_of_workdir(config, workdir)
    facts = {"parameters": sum_of(model), "formula": config.policy.language.formula} | about(sources)
    return LoadedPlayer(contender.name, "", model, contender.greedy, sources, facts)


def sum_of(model: Model) -> str:
    """The checksum of a policy's parameters."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves((model.params, model.frozen)):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


def make_writing(config: ConfigDict, workdir: Path, contender: Contender, flag: str, loaded: Writers) -> LoadedPlayer:
    """`make_playing` for a policy that writes."""
    writer, checksum = load_writer(config, workdir, contender, flag, loaded)
    sources = sources_of_workdir(config, workdir)
    facts = {"parameters": checksum, "recipe": writer.model.recipe.name} | about(sources)
    if any(map(math.isfinite, bounds := writer.model.bounds)):
        facts["bounds"] = to_plain(bounds)
    return LoadedPlayer(contender.name, "", None, False, sources, facts, writer=writer, decoding=contender.decoding)


def sources_of_workdir(config: ConfigDict, workdir: Path) -> RewardSources:
    """The reward sources of the workdir's policy; without a learnt one among them, the config's learnt reward."""
    try:
        directory, steps = list_steps(str(workdir / "policy"), FLAG)
    except UserError:  # no policy
        steps = []
    sources = RewardSources()
    if steps:
        _, _, sources = read_policy(directory, str(steps[-1]), trusted_classes(config, config.policy.network))
    if sources.learnt:
        return sources
    section = config.policy
    if not section.reward_dir:
        try:
            find_checkpoints(workdir / "reward")
        except UserError:
            return sources
    reward = load_reward(section.reward_dir or workdir, section.reward_checkpoint)
    learnt = LearntSource(reward, make_mix(section, reward), section.reference_alignment)
    return RewardSources([Weighted(LEARNT, SOURCES[LEARNT].path, section.intrinsic_coefficient, learnt), *sources])


def about(sources: RewardSources) -> dict[str, Any]:
    """Facts for the summary: about the learnt reward, and under `sources` about the others, if there are any."""
    found = sources.learnt.about() if sources.learnt else dict(NO_REWARD)
    others = sources.about()
    return found | ({"sources": others} if others else {})


def play(
    config: ConfigDict,
    playing: LoadedPlayer,
    wanted: set[int],
    rows: dict[int, EpisodeRow],
    tracks: dict[int, Track],
    keep: Callable[[], None],
    keep_frames: Callable[[int, dict[str, np.ndarray]], None] | None = None,
) -> list[int]:
    """Plays the wanted episodes and adds their results to `rows` and `tracks`.

    Args:
      config: of the experiment.
      playing: the player.
      wanted: numbers of episodes.
      rows, tracks: figures and steps of each episode, by its number; updated in place.
      keep: called about every KEEP_EVERY_S seconds, to write both to disk.
      keep_frames: called with the number and the frames of each recorded episode, for games that cannot be repeated
        exactly. None: events of episodes are counted by playing them again.

    Returns:
      Numbers of the episodes that were given up, because their game ended every worker; they do not have a row.
    """
    section = config.evaluate
    missing = set(wanted)
    if not missing:
        return []
    # More games than episodes would only cost time.
    workers = min(max(section.num_workers, 1), len(missing))
    games = min(section.games_per_worker, -(-len(missing) // workers))
    groups = min(GROUPS, games)
    games -= games % groups
    policy: PolicyPlayer | WritingPlayer | None = None
    seed, width = config.seed + min(missing), math.prod(make_world(config.env).action.shape)
    if playing.model:
        policy = PolicyPlayer(playing.model, workers * games, games // groups, seed, playing.greedy, only=playing.only)
    elif playing.writer and playing.decoding:
        policy = WritingPlayer(playing.writer, playing.decoding, width, workers * games, seed)
    observations = {*(policy.reads if policy else ()), *playing.sources.observations}
    env, pieces, timers = config.env.to_dict(), Pieces(), Timers()
    happenings = rules_of(make_world(env)).happenings()
    with (
        contextlib.closing(playing.sources),
        Recordings(happenings) if keep_frames else EventCounter(env, config.seed, happenings) as counter,
        ActorPool(
            env,
            tuple(sorted(observations)),
            num_workers=min(section.num_workers, workers),
            games_per_worker=games,
            rollout_length=ROLLOUT_WRITTEN if playing.writer else ROLLOUT,
            player=playing.scripted,
            groups=groups,
            outputs=policy.outputs if policy else None,
            starts=policy.starts if policy else None,
            seed=config.seed,
            stream=SeedStream.EVALUATE,
            first_episode=min(missing),
            hang_timeout_s=section.hang_timeout_s,
            record=counter.folder if isinstance(counter, Recordings) else "",
            flag="--config.evaluate",
        ) as pool,
    ):
        done, figures = len(rows), tuple(pool.world.figures)
        make_steps = functools.partial(as_steps, sources=playing.sources, num_actions=len(pool.world.action_names))
        progress = Progress(f"evaluate {playing.name}", done + len(missing), "episodes", done)
        kept, keeping = time.monotonic(), 0.0
        while not missing <= set(pool.given_up):
            requests, fulls = pool.poll(0.2)
            if policy:
                answer(pool, requests, policy)
            if fulls:
                batch = make_batch(pool, fulls, make_steps, timers)
                for number, (full, ended) in enumerate(zip(batch.fulls, batch.episodes, strict=True)):
                    size = pool.layout.group_size
                    columns = slice(number * size, (number + 1) * size)
                    part = {key: array[:, columns] for key, array in batch.arrays.items()}
                    for info, steps in pieces.take(full, part, part.pop("first")[0], ended):
                        if due := info.episode in missing:
                            missing.remove(info.episode)
                            track = Track(*[steps[name] for name in COLUMNS])
                            tracks[info.episode] = track._replace(odds=steps.get(ODDS), charge=steps.get(CHARGE))
                            rows[info.episode] = as_row(info, figures, steps, counter, playing.sources)
                        recorded = counter.take(info.episode) if isinstance(counter, Recordings) else None
                        if due and recorded and keep_frames:  # a second attempt does not have a row
                            keep_frames(info.episode, recorded)
            progress.update(len(rows))
            if time.monotonic() - kept > KEEP_EVERY_S + KEEP_PER_S * keeping:
                began = time.monotonic()
                keep()
                kept = time.monotonic()
                keeping = kept - began
        progress.close()
    return sorted(missing)


def as_steps(arrays: Arrays, sources: RewardSources, num_actions: int) -> StepArrays:
    """The arrays of a batch that a Track keeps, and the rewards of each other source and term. [T, B], except `first`.

    Unknown values are NaN. The first `num_actions` logits are those of actions, unless these have several parts.
    """
    action = arrays["action"]
    nothing = np.full(arrays["reward"].shape, np.nan, np.float32)  # an action may have more axes
    steps = {"action": action, "first": arrays["first"], "value": arrays.get("value", nothing)}
    steps |= {CHARGE: arrays[CHARGE]} if CHARGE in arrays else {}
    steps |= {"probability": arrays.get("probability", nothing), "z": nothing, "intrinsic": nothing}
    if "logits" in arrays and num_actions:
        odds = probabilities(arrays["logits"][..., :num_actions])
        steps["probability"] = np.take_along_axis(odds, action[..., None], -1)[..., 0]
        if odds.shape[-1] <= FEW:
            steps[ODDS] = np.asarray(odds, np.float32)
    moments = sources.moments(arrays)
    rewards = sources.shape(moments)
    sources.check(rewards, nothing.shape)
    if LEARNT in rewards:
        steps["z"] = moments[LEARNT]["z"].astype(np.float32)
        steps["intrinsic"] = np.asarray(rewards.pop(LEARNT), np.float32)
    elif ONLINE in rewards:  # replays show it as the learnt reward
        steps["z"] = moments[ONLINE]["worth"].astype(np.float32)
        steps["intrinsic"] = np.asarray(rewards[ONLINE], np.float32)
    elif name := shown_program(rewards):  # likewise
        steps["intrinsic"] = np.asarray(rewards[name], np.float32)
    paid = {f"{REWARD}{name}": array for name, array in rewards.items()}
    for name, terms in sources.terms(arrays).items():
        paid |= {f"{TERM}{name}: {text}": array for text, array in terms.items()}
    return steps | {key: np.asarray(array, np.float32) for key, array in paid.items()}


def as_row(
    info: EpisodeInfo,
    figures: Iterable[str],
    steps: StepArrays,
    counter: EventCounter | Recordings,
    sources: RewardSources,
) -> EpisodeRow:
    """The line of one finished episode in `episodes.jsonl`, with the world's `figures`."""
    events = counter.describe(info, steps["action"])
    return figures_of(info, figures) | returns_of(steps, sources) | (events or EpisodeEvents("", None))._asdict()


def returns_of(steps: StepArrays, sources: RewardSources) -> EpisodeRow:
    """The learnt return of an episode, None without one; `returns` has those of other sources, `terms` of programs."""
    found: EpisodeRow = {
        "intrinsic_return": float(steps["intrinsic"].sum(dtype=np.float64)) if sources.learnt else None
    }
    returns: dict[str, float] = {}
    terms: dict[str, dict[str, float]] = {}
    for key, array in steps.items():
        if key.startswith(REWARD):
            returns[key.removeprefix(REWARD)] = float(array.sum(dtype=np.float64))
        elif key.startswith(TERM):
            name, _, text = key.removeprefix(TERM).partition(": ")
            terms.setdefault(name, {})[text] = float(array.sum(dtype=np.float64))
    return found | ({"returns": returns} if returns else {}) | ({"terms": terms} if terms else {})
