"""A reward source that computes a program: `--config.policy.sources=code:rewards/gold.reward:0.1`.

The program is read and checked when training starts. Checkpoints hold its text and the part of the world that it
reads, so evaluation needs neither the file nor any import. A resumed run begins new episodes, so there is no state to
save.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.code.grammar import MOST_BYTES, Program, ProgramError, check, terms_of
from motif_jax.rewards.code.names import find_readable, readable_from
from motif_jax.rewards.code.running import Runner
from motif_jax.rewards.registry import BEST, FLAG, WRITTEN, SourceChoice
from motif_jax.rewards.section import SourcesConfig
from motif_jax.rewards.source import Arrays, Facts, RewardSource, Setting
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import read_bytes


class CodeReward(RewardSource):
    """The value of a program in each step."""

    def __init__(self, program: Program, file: str):
        self._program, self._file, self._runner = program, file, Runner(program)
        self.observations = program.observations
        self._terms = [(term.text, Runner(term)) for term in terms_of(program)]

    @classmethod
    def make(cls, setting: Setting) -> CodeReward:
        """See `RewardSource`: the choice names the file."""
        file = setting.choice.file
        if file == WRITTEN:
            file = str(setting.workdir / WRITTEN / BEST)
            if not Path(file).exists():
                raise UserError(
                    f"there is no {file!r}: run the stage {WRITTEN} in this workdir before training "
                    f"(--stage={WRITTEN},train_policy); if it found no reward, write again in another --workdir, with "
                    f"more --config.{WRITTEN}.proposals or another .writer, or name a file ({FLAG})"
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


def check_choice(choice: SourceChoice, config: SourcesConfig, world: Any) -> None:
    """See `SourceChoice.check`; the program of the stage write_reward may not exist yet."""
    if choice.file != WRITTEN:
        read_program(choice.file, world)


def read_program(file: str, world: Any) -> Program:
    """Reads and checks a program; raises UserError with the file and the place of the error."""
    with legible(f"the reward program {shown(file)}", FLAG):
        data = read_bytes(Path(file), MOST_BYTES)
    try:
        return check(data.decode(errors="replace"), find_readable(world))  # what is not ASCII is refused with its place
    except ProgramError as error:
        raise UserError(f"{shown(file)}, {error} ({FLAG})") from error
