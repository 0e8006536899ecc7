"""A reward source that computes a program: `--config.policy.sources=code:rewards/gold.reward:0.1`.

The coefficient is 1 unless it is given; `code:write_reward` is the best program that this stage has written in the same
workdir.

The program is read and checked when training starts. Checkpoints hold its text and the part of the world that it
reads, so evaluation needs neither the file nor any import. A resumed run begins new episodes, so there is no state to
save.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from motif_jax.config.table import shown
from motif_jax.contrib.code_rewards.grammar import MOST_BYTES, Program, ProgramError, check, terms_of
from motif_jax.contrib.code_rewards.names import find_readable, readable_from
from motif_jax.contrib.code_rewards.running import Runner
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.registry import FLAG, SourceChoice, SourceKind
from motif_jax.rewards.section import SourcesConfig
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import read_bytes

SUFFIX = ".reward"  # of a program's file
WRITTEN, BEST = "write_reward", f"best{SUFFIX}"  # the stage that writes programs, its directory, and its best program
STEM = re.compile(r"[A-Za-z0-9_]{1,60}")


class CodeReward(RewardSource):
    """The value of a program in each step."""

    def __init__(self, program: Program, file: str):
        self._program, self._file, self._runner = program, file, Runner(program)
        self.observations = program.observations
        self._terms = [(term.text, Runner(term)) for term in terms_of(program)]

    @classmethod
    def make(cls, setting: Setting) -> CodeReward:
        """See `RewardSource`: the choice names the file."""
        file = setting.choice.argument
        if file == WRITTEN:
            file = str(setting.workdir / WRITTEN / BEST)
            if not Path(file).exists():
                raise UserError(
                    f"there is no {file!r}: run the stage {WRITTEN} in this workdir before training "
                    f"(--stage={WRITTEN},train_policy); if it found no reward, write again in another --workdir, with "
                    f"more --config.code_rewards.proposals or another .writer, or name a file ({FLAG})"
                )
        return cls(read_program(file, make_world(setting.config.env)), file)

    @classmethod
    def rebuild(cls, arrays: object, facts: Facts) -> CodeReward:
        """See `RewardSource`; raises UserError if the facts are not those of a program."""
        try:
            return cls(check(facts["program"], readable_from(facts["uses"])), PurePath(facts["file"]).name)
        except (AttributeError, LookupError, TypeError, ValueError, ProgramError) as error:
            raise UserError(f"the checkpoint has a damaged reward program: {error!s:.200} ({FLAG})") from error

    def facts(self) -> Facts:
        """See `RewardSource`; without the directory of the file, which is of no use elsewhere."""
        return {"file": PurePath(self._file).name, "program": self._program.text, "uses": self._program.uses.record()}

    def restore(self, arrays: object, facts: Facts) -> None:
        if facts.get("program") != self._program.text:
            raise UserError(
                f"the reward program {self._file!r} has changed since this policy's training began: choose another "
                f"--workdir, or write the old program again ({FLAG})"
            )

    def about(self) -> Facts:
        """See `RewardSource`: equal programs are equal whatever their files are called."""
        return {name: fact for name, fact in self.facts().items() if name != "file"}

    def rewards(self, rollouts: Arrays) -> np.ndarray:
        return self._runner.rewards(rollouts)

    def reward_terms(self, rollouts: Arrays) -> Arrays:
        """The rewards of the program's terms by their texts; empty for a single term. [T, B] each

        Equal terms are added. As `rewards`, it remembers the current episodes, so it takes all rollouts in order.
        """
        rewards: Arrays = {}
        for text, runner in self._terms if len(self._terms) > 1 else ():
            rewards[text] = rewards.get(text, 0.0) + runner.rewards(rollouts)
        return rewards


class CodeKind(SourceKind):
    """The kind of all programs: `code:FILE`, or `code:write_reward`."""

    def choose(self, name: str, argument: str, flag: str) -> SourceChoice:
        """See `SourceKind`; the file is not read yet."""
        stem = "written" if argument == WRITTEN else PurePath(argument).name.removesuffix(SUFFIX)
        if argument != WRITTEN and not (argument.endswith(SUFFIX) and STEM.fullmatch(stem)):
            form = f"a program is a file NAME{SUFFIX} (up to 60 letters, digits, underscores), or {WRITTEN}"
            raise UserError(f"{form}, not {shown(argument)} ({flag})")
        return SourceChoice(f"{name}_{stem}", self.path, argument=argument)

    def title_of(self, name: str) -> str:
        stem = name.partition("_")[2]
        return "the written program" if stem == "written" else f"the program {stem}"

    def liked_of(self, name: str) -> str:
        return f"what {self.title_of(name)} pays"

    def check(self, choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
        """See `SourceKind`; the program of the stage write_reward may not exist yet."""
        if choice.argument != WRITTEN:
            read_program(choice.argument, world)

    def text(self, facts: Any) -> str:
        text = facts.get("program") if isinstance(facts, Mapping) else None
        return text if isinstance(text, str) else ""


CODE = CodeKind(
    path=f"{__name__}:CodeReward",
    in_replays=True,
    replay_word="program",
    of_captions=False,
    has_argument=True,
    needs_coefficient=False,
)


def read_program(file: str, world: Any) -> Program:
    """Reads and checks a program; raises UserError with the file and the place of the error."""
    with legible(f"the reward program {shown(file)}", FLAG):
        data = read_bytes(Path(file), MOST_BYTES)
    try:
        return check(data.decode(errors="replace"), find_readable(world))  # what is not ASCII is refused with its place
    except ProgramError as error:
        raise UserError(f"{shown(file)}, {error} ({FLAG})") from error
