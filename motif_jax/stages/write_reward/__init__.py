"""Writes a reward as a program: a model proposes, reads what came of it on recorded episodes, and writes again.

    python -m motif_jax.launch --config=configs/motif.py:gold --workdir=runs/gold --stage=write_reward

The best program by the judge's agreement on pairs of episodes becomes `write_reward/best.reward`, a reward source
(docs/code-rewards.md). Nothing that a model writes is executed: programs are parsed and checked (rewards/code/).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.annotation.backends import OpenBackend, opened
from motif_jax.config.table import Tables, Text, Whole, check_values, table_of, value
from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import is_text
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.envs.worlds import check_world
from motif_jax.rewards.choice import BEST
from motif_jax.stages import EXPERIMENT, Stage, with_result
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.annotate.setup import check_section
from motif_jax.stages.evaluate import READS as EVALUATION
from motif_jax.stages.train_policy.section import TABLES as POLICY
from motif_jax.stages.write_reward.names import FLAG, RECORD, SCRIPTED, SERVER, STAGE_NAME
from motif_jax.structs import UserError
from motif_jax.system.files import read_json


@dataclass(frozen=True)
class WriteReward:
    """A reward that a language model writes as a program."""

    writer: str = value(
        SCRIPTED,
        Text((SCRIPTED, SERVER)),
        "who writes: templates over the goal's words, or the model behind annotate.server",
        decides=True,
    )
    goal: str = value("", Text(longest=2000), "the goal in one sentence; empty: that of annotate.goal", decides=True)
    proposals: int = value(4, Whole(1, 64), "programs of a round", decides=True)
    revisions: int = value(
        2, Whole(0, 20), "rounds after the first, which are told what came of the last", decides=True
    )
    attempts: int = value(3, Whole(1, 20), "answers that a program may take; one with an error is asked for again")
    players: str = value("random", Text(longest=1000), "scripted players of the recorded episodes", decides=True)
    steps: int = value(20_000, Whole(100, 10**7), "recorded steps", decides=True)
    pairs: int = value(
        80, Whole(4, 10**5), "pairs of episodes for the judge: half choose a program, half tell of it", decides=True
    )
    train_for_env_steps: int = value(
        0,
        Whole(0, 10**9),
        "steps of a training with the best program of each round but the last, whose results the writer reads; 0: none",
        decides=True,
    )


TABLES: Tables = {STAGE_NAME: table_of(WriteReward)}
READS: Tables = EXPERIMENT | {"env": ENV} | ANNOTATION | POLICY | EVALUATION | TABLES


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    from motif_jax.actors.players import parse_scripted
    from motif_jax.rewards.code.names import find_readable

    check_values(config, READS)
    world = check_world(config.env)
    if is_text(world.action):
        raise UserError(f"the world {world.name!r} is played by writing, and has no steps to pay (--config.env.world)")
    parse_scripted(config.write_reward.players, world, f"{FLAG}.players")
    find_readable(world)
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))
    if config.write_reward.train_for_env_steps:
        from motif_jax.stages.write_reward.training import STAGES, trained_config

        for stage in STAGES:
            stage.check(trained_config(config))


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the best program has been chosen."""
    return (workdir / STAGE_NAME / BEST).exists() and read_json(workdir / STAGE_NAME / RECORD) is not None


def loads_jax(config: ConfigDict) -> bool:
    """Whether it trains, or compares programs with a learnt reward."""
    learnt = bool(config.policy.reward_dir) or "train_reward" in config.stages
    return learnt or config.write_reward.train_for_env_steps > 0


def run(config: ConfigDict, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Writes the programs and the record of all rounds. `open_backend` opens the judge."""
    from motif_jax.stages.write_reward.job import write

    write(config, workdir / STAGE_NAME, open_backend)


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    identity=("", "env", STAGE_NAME),
    check=check,
    is_complete=is_complete,
    run=run,
    artefacts=lambda workdir: with_result(workdir / STAGE_NAME, "round-0", BEST),
    makes=(STAGE_NAME,),
    loads_jax=loads_jax,
    writes="--config.write_reward.proposals, .revisions",
    memory="--config.write_reward.steps",
)
