"""The stage write_reward: a language model writes a reward as a program, reads the results, and revises it.

    python -m motif_jax.launch --config=configs/goals.py:gold --workdir=runs/gold --stage=write_reward

The best program by the judge's agreement on pairs of episodes becomes `write_reward/best.reward`, a reward source
(docs/code-rewards.md). Nothing that a model writes is executed: programs are parsed and checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from motif_jax.annotation.backends import check_server
from motif_jax.contrib.code_rewards.sections import MODEL, SCRIPTED, CodeRewardsSection
from motif_jax.contrib.code_rewards.source import BEST, WRITTEN
from motif_jax.devices.releases import needs_saved
from motif_jax.envs.protocols import TASK
from motif_jax.envs.world import is_text
from motif_jax.envs.worlds import check_world
from motif_jax.files import read_json
from motif_jax.language.hub import check_language_model
from motif_jax.names import PLUGINS
from motif_jax.pages.players import keys_of
from motif_jax.stages import Stage, annotate, decisive_in, exclusive_lock, find_stage, later, values_of, with_result
from motif_jax.stages.annotate import AnnotateConfig
from motif_jax.stages.evaluate import EvaluateConfig, rules_of
from motif_jax.stages.train_policy import Profile
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits

STAGE_NAME = WRITTEN
SECTION = "code_rewards"
TITLE = "The written reward"  # of the part of the report
FLAG = f"--config.{SECTION}"
RECORD = "record.json"


@dataclass(frozen=True)
class WriteConfig(EvaluateConfig, AnnotateConfig):
    """The values that the stage and its trainings read."""

    profile: Profile = field(default_factory=Profile)

    def decisive(self) -> set[str]:
        return decisive_in(self, "", "env", SECTION)

    @property
    def code_rewards(self) -> CodeRewardsSection:
        section: CodeRewardsSection = self.plugins[SECTION]
        return section


def check(config: WriteConfig, workdir: Path) -> Iterator[Need]:
    """Raises UserError for values that cannot work; returns what is needed."""
    from motif_jax.actors.players import parse_scripted
    from motif_jax.contrib.code_rewards.guide import check_library
    from motif_jax.contrib.code_rewards.names import find_readable

    world = check_world(config.env)
    if is_text(world.action):
        raise UserError(f"the world {world.name!r} is played by writing, and has no steps to pay (--config.env.world)")
    parse_scripted(config.code_rewards.players, world, f"{FLAG}.players")
    find_readable(world)
    annotate.check(config, workdir, of_captions=True)
    if annotate.make_backend(config).rates:
        raise UserError(
            "the judge compares whole episodes, and mode rate shows it single messages: choose reason or score "
            "(--config.annotate.mode)"
        )
    if config.code_rewards.writer not in (SCRIPTED, MODEL):
        check_server(config.annotate.server)
    if config.code_rewards.writer == MODEL:
        check_library("writer=model", f"{FLAG}.writer")
        if not config.annotate.model:
            raise UserError("name a directory, a GGUF file, or smollm2 (--config.annotate.model)")
    of_trainings: list[Iterable[Need]] = []
    if config.code_rewards.train_for_env_steps:
        names = [*keys_of(world.figures), *rules_of(world).names]
        for by in config.code_rewards.figures:
            if by not in names:
                raise UserError(f"the games have no figure {by!r}: choose from {', '.join(names)} ({FLAG}.chosen_by)")
        of_trainings = [stage.check(view, workdir) for stage, view in stages_of(config)]
    return itertools.chain(needs(config), *of_trainings)


def needs(config: WriteConfig) -> Iterator[Need]:
    """What the judge and the writer need, and the learnt reward."""
    policy, model = config.policy, config.annotate.model
    yield from annotate.needs_of_judge(config)
    if config.code_rewards.writer == MODEL:
        yield Need(lambda: check_language_model(model, "--config.annotate.model"), Path(model))
    yield from needs_saved(policy.reward_dir, "reward", "--config.policy.reward_dir", policy.reward_checkpoint)


def stages_of(config: WriteConfig) -> list[tuple[Stage[Any], Any]]:
    """The stages of a training with a program alone, each with its config; the program is in the training's workdir."""
    policy = replace(
        config.policy, sources=f"code:{WRITTEN}", intrinsic_coefficient=0.0, extrinsic_coefficient=0.0, reward_dir="",
        train_for_env_steps=config.code_rewards.train_for_env_steps, train_for_seconds=0.0, train_until="",
    )  # fmt: skip
    evaluate = replace(
        config.evaluate, policy="", baselines="random", episodes=40, protocol=TASK, variations="", controls="",
        replays="",
    )  # fmt: skip
    plugins = {  # the policy acts alone
        name: type(one)() if PLUGINS.by_name[name].acting else one for name, one in config.plugins.items()
    }
    values = values_of(replace(config, policy=policy, evaluate=evaluate, plugins=plugins))
    return [(stage, stage.view(values)) for stage in map(find_stage, ("train_policy", "evaluate"))]


def is_complete(config: WriteConfig, workdir: Path) -> bool:
    """Whether the best program has been chosen, or no reward was found."""
    folder = workdir / STAGE_NAME
    if not (folder / RECORD).exists():
        return False
    return (folder / BEST).exists() or not read_json(folder / RECORD).get("found", True)


STAGE = Stage(
    name=STAGE_NAME,
    sections=(),
    config=WriteConfig,
    folders=lambda config, workdir: with_result(workdir / STAGE_NAME, "round-0", BEST),
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.contrib.code_rewards.job:write"),
    lock=exclusive_lock,
    limits=Limits("--config.code_rewards.proposals, .revisions", "--config.code_rewards.steps"),
)
