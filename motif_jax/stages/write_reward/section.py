"""The config of the stage, and names of its files and values."""

from __future__ import annotations

from dataclasses import dataclass, field

from motif_jax.config.table import Tables, Text, Whole, tables_of, value
from motif_jax.rewards.choice import WRITTEN
from motif_jax.stages.annotate.setup import AnnotateConfig
from motif_jax.stages.evaluate.contenders import EvaluateConfig
from motif_jax.stages.train_policy.section import Profile

STAGE_NAME = WRITTEN
FLAG = f"--config.{STAGE_NAME}"
RECORD = "record.json"
SCRIPTED, SERVER, MODEL = "scripted", "server", "model"  # writers


@dataclass(frozen=True)
class WriteReward:
    """A reward that a language model writes as a program."""

    writer: str = value(
        SCRIPTED,
        Text((SCRIPTED, SERVER, MODEL)),
        "scripted: templates over the goal's words; server: the model behind annotate.server; model: annotate.model in "
        "this process, which can write nothing but programs",
        decides=True,
    )
    goal: str = value("", Text(longest=2000), "the goal in one sentence; empty: that of annotate.goal", decides=True)
    proposals: int = value(4, Whole(1, 64), "programs per round", decides=True)
    revisions: int = value(
        2, Whole(0, 20), "further rounds, in which the writer sees the results of the previous one", decides=True
    )
    attempts: int = value(3, Whole(1, 20), "attempts per program; one with an error is asked for again")
    players: str = value("random", Text(longest=1000), "scripted players of the recorded episodes", decides=True)
    steps: int = value(20_000, Whole(100, 10**7), "recorded steps", decides=True)
    pairs: int = value(
        80,
        Whole(4, 10**5),
        "pairs of episodes for the judge: half to select programs, half to evaluate the best",
        decides=True,
    )
    train_for_env_steps: int = value(
        0,
        Whole(0, 10**9),
        "steps of training with the best program of each round but the last, whose results the writer sees; 0: none",
        decides=True,
    )


@dataclass(frozen=True)
class WriteConfig(EvaluateConfig, AnnotateConfig):
    """What the stage reads, and its trainings with programs."""

    profile: Profile = field(default_factory=Profile)
    write_reward: WriteReward = WriteReward()


READS = tables_of(WriteConfig)
TABLES: Tables = {STAGE_NAME: READS[STAGE_NAME]}
