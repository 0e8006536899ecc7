"""Evaluate: plays the same games with policies and scripted players, and summarises them.

This module is quick to import; play.py plays.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from motif_jax.actors.pool import check_capacity
from motif_jax.envs.protocols import check_protocol
from motif_jax.envs.world import World, is_text
from motif_jax.envs.worlds import check_world
from motif_jax.offline.recipes import recipe_of
from motif_jax.policies.decoding import check_decoding, decodings_of
from motif_jax.stages import Stage, check_cluster, later, with_result
from motif_jax.stages.evaluate import contenders
from motif_jax.stages.evaluate.contenders import EvaluateConfig
from motif_jax.stages.evaluate.summary import EPISODES, SUMMARY, rules_of
from motif_jax.stages.train_values import check_texts_fit
from motif_jax.structs import UserError


def artefacts(workdir: Path) -> list[Path]:
    """The directories of the evaluated players."""
    folders = sorted((workdir / "evaluate").glob("*"))
    return [made for folder in folders for made in with_result(folder, EPISODES, SUMMARY)]


def check(config: EvaluateConfig) -> None:
    """Raises UserError for values that cannot work."""
    section = config.evaluate
    check_protocol(config.env, section.protocol)
    world = check_world(config.by_protocol().env)
    rules_of(world)
    if is_text(world.action):
        check_writing(config, world)
    contenders.check_policies(section, world)
    contenders.check_variations(config, world)
    contenders.check_choice(section.replays, section.episodes)
    check_capacity(world, section.num_workers, section.games_per_worker, flag="--config.evaluate")
    check_cluster(config.cluster)


def check_writing(config: EvaluateConfig, world: World) -> None:
    """Raises UserError if the values that this experiment learns do not allow the chosen decodings."""
    section, decodings = config.evaluate, decodings_of(asdict(config.decoding))
    if section.greedy:
        raise UserError(
            f"in the world {world.name!r} policies write texts: choose --config.decoding.kinds=greedy instead "
            "(--config.evaluate.greedy)"
        )
    if section.policy == "" and "train_values" in config.stages:
        check_decoding(recipe_of(config.train_values.recipe), decodings)
        check_texts_fit(config)


def is_complete(config: EvaluateConfig, workdir: Path) -> bool:
    """Whether every player that the config names has a summary over the wanted number of episodes."""
    for asked in contenders.with_variations(config):
        try:
            found = contenders.find_contenders(asked, workdir)
        except UserError:
            return False  # `run` reports it; an earlier stage may still make the policy
        if not all(contenders.is_evaluated(asked, workdir, contender) for contender, _ in found):
            return False
    return True


STAGE = Stage(
    config=EvaluateConfig,
    sections=("evaluate", "decoding"),
    identity=("", "env"),  # so that compared results are from the same games
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.evaluate.play:run"),
    writes="--config.evaluate.replays, .episodes",
    memory="--config.evaluate.num_workers, .games_per_worker",
    artefacts=artefacts,
)
