"""A reward source that computes a program: `--config.policy.sources=code:rewards/gold.reward:0.1`.

The program is read and checked when training starts. Checkpoints hold its text and the part of the world that it
reads, so evaluation needs neither the file nor any import. A resumed run begins new episodes, so there is no state to
save.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from motif_jax.config.table import shown
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json
from motif_jax.rewards.code.checking import LOWEST, check
from motif_jax.rewards.code.grammar import OPERATORS, PREFIXES
from motif_jax.rewards.code.names import NUMBER, Expression, Program, find_readable, readable_from
from motif_jax.rewards.code.running import Runner
from motif_jax.rewards.code.tokens import MOST_BYTES, ProgramError
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
            record = setting.workdir / WRITTEN / "record.json"
            if record.exists() and not read_json(record).get("found", True):
                raise UserError(
                    f"the stage {WRITTEN} found no reward in this workdir: write again in another --workdir, with more "
                    f"--config.{WRITTEN}.proposals or another .writer, or name a file ({FLAG})"
                )
            if not Path(file).exists():
                raise UserError(
                    f"there is no {file!r}: run the stage {WRITTEN} in this workdir before training "
                    f"(--stage={WRITTEN},train_policy), or name a file ({FLAG})"
                )
        return cls(read_program(file, make_world(setting.config.env)), file)

    @classmethod
    def rebuild(cls, arrays: object, facts: Facts) -> CodeReward:
        """See `RewardSource`; raises UserError if the facts are not those of a program."""
        try:
            text, file, uses = facts["program"], facts["file"], readable_from(facts["uses"])
            if not (isinstance(text, str) and isinstance(file, str)):
                raise ValueError("its text is missing")
            return cls(check(text, uses), file)
        except (KeyError, TypeError, ValueError, ProgramError) as error:
            raise UserError(f"the checkpoint has a damaged reward program: {error} ({FLAG})") from error

    def facts(self) -> Facts:
        """See `RewardSource`; without the directory of the file, which is of no use elsewhere."""
        return {"file": PurePath(self._file).name, "program": self._program.text, "uses": self._program.uses.record()}

    def restore(self, arrays: object, facts: Facts) -> None:
        """Raises UserError unless the program is the one with which training began."""
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
    path = Path(file)
    with legible(f"the reward program {shown(file)}", FLAG):
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise ValueError("it is a link: name the file itself")
        data = read_bytes(path, MOST_BYTES)
    readable = find_readable(world)
    try:
        return check(data.decode(errors="replace"), readable)  # what is not ASCII is refused with its place
    except ProgramError as error:
        raise UserError(f"{shown(file)}, {error} ({FLAG})") from error


# ---- the terms of the sum, whose shares of the return are shown


def terms_of(program: Program) -> tuple[Program, ...]:
    """The terms of a program as programs with their signs; a program that is not a sum is its only term.

    `+`, `-` and a minus before a sum are resolved; a sum that is multiplied or divided is one term. In each step the
    rewards of the terms add up to the program's reward, except for rounding and limits: each term is limited as a
    reward is, and the program's reward is limited after its terms are added.
    """
    return tuple(_terms(program, program.root, negative=False))


def _terms(program: Program, root: Expression, negative: bool) -> Iterator[Program]:
    """The terms of a part of the program, with the opposite sign if `negative`."""
    if root.kind in ("+", "-", "negative"):
        signs = {"+": (False, False), "-": (False, True), "negative": (True,)}[root.kind]
        for part, sign in zip(root.args, signs, strict=True):
            yield from _terms(program, part, negative != sign)
    elif negative:
        text = _written(root, OPERATORS["*"].strength)
        text = text[1:] if text.startswith("-") else f"-{text}"
        yield program._replace(text=text, root=Expression("negative", NUMBER, root.of, (root,)))
    else:
        yield program._replace(text=_written(root), root=root)


def _written(one: Expression, least: int = LOWEST) -> str:
    """The text of a tree, in parentheses if its operator is weaker than `least`."""
    symbol = "-" if one.kind == "negative" else one.kind.removeprefix("text ")
    if one.kind == "number":
        return repr(one.value).removesuffix(".0")
    quoted = f'"{one.text}"'
    if one.kind in ("text", "read"):
        return quoted if one.kind == "text" else one.text
    if one.kind == "says":
        return f"says({', '.join(filter(None, (one.args[0].text, quoted)))})"
    if len(one.args) == 1 and symbol in PREFIXES:
        strength = PREFIXES[symbol].strength
        text = f"{'not ' if symbol == 'not' else symbol}{_written(one.args[0], strength)}"
    elif symbol in OPERATORS:
        strength = OPERATORS[symbol].strength
        left, right = one.args
        text = f"{_written(left, strength)} {symbol} {_written(right, strength + 1)}"
    else:
        args = one.args[:2] if one.kind == "distance" else one.args
        return f"{one.kind}({', '.join(map(_written, args))})"
    return text if strength >= least else f"({text})"
