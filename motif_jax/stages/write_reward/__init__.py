"""Writes a reward as a program: a model proposes, reads what came of it on recorded episodes, and writes again.

    python -m motif_jax.launch --config=configs/motif.py:gold --workdir=runs/gold --stage=write_reward

The best program by the judge's agreement on pairs of episodes becomes `write_reward/best.reward`, a reward source
(docs/code-rewards.md). Nothing that a model writes is executed: programs are parsed and checked (rewards/code/).
"""

from __future__ import annotations

from pathlib import Path

from motif_jax.envs.texts import texts_of
from motif_jax.envs.world import is_text
from motif_jax.envs.worlds import check_world
from motif_jax.files import read_json
from motif_jax.language.config import locate_model
from motif_jax.rewards.choice import BEST
from motif_jax.stages import Stage, later, with_result
from motif_jax.stages.annotate.setup import check_section
from motif_jax.stages.write_reward.section import FLAG, MODEL, READS, RECORD, STAGE_NAME, TABLES, WriteConfig
from motif_jax.structs import UserError


def check(config: WriteConfig) -> None:
    """Raises UserError for values that cannot work."""
    from motif_jax.actors.players import parse_scripted
    from motif_jax.rewards.code.names import find_readable

    world = check_world(config.env)
    if is_text(world.action):
        raise UserError(f"the world {world.name!r} is played by writing, and has no steps to pay (--config.env.world)")
    parse_scripted(config.write_reward.players, world, f"{FLAG}.players")
    find_readable(world)
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))
    if config.write_reward.writer == MODEL:
        if not config.annotate.model:
            raise UserError("name a directory, a GGUF file, or smollm2 (--config.annotate.model)")
        locate_model(config.annotate.model, "--config.annotate.model")
    if config.write_reward.train_for_env_steps:
        from motif_jax.stages.write_reward.training import stages_of

        for stage, view in stages_of(config):
            stage.check(view)


def is_complete(config: WriteConfig, workdir: Path) -> bool:
    """Whether the best program has been chosen, or no reward was found."""
    folder = workdir / STAGE_NAME
    return (folder / RECORD).exists() and ((folder / BEST).exists() or not read_json(folder / RECORD)["found"])


def loads_jax(config: WriteConfig) -> bool:
    """Whether it trains, writes with a model in this process, or compares programs with a learnt reward."""
    if config.write_reward.writer == MODEL:
        return True
    learnt = bool(config.policy.reward_dir) or "train_reward" in config.stages
    return learnt or config.write_reward.train_for_env_steps > 0


STAGE = Stage(
    config=WriteConfig,
    tables=TABLES,
    reads=READS,
    identity=("", "env", STAGE_NAME),
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.write_reward.job:write"),
    artefacts=lambda workdir: with_result(workdir / STAGE_NAME, "round-0", BEST),
    loads_jax=loads_jax,
    writes="--config.write_reward.proposals, .revisions",
    memory="--config.write_reward.steps",
)
