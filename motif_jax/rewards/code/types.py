"""The typed tree of a reward program."""

from __future__ import annotations

from typing import NamedTuple

from motif_jax.envs.world import Viewpoint
from motif_jax.rewards.code.names import CAPTION_ENTRY, MOMENT, STEP, Entry, Readable

CONSTANT = "constant"
ORDER = (CONSTANT, MOMENT, STEP)  # a value that is made of several is of the last of theirs
CELLS = "comparison of a grid"  # a type: one flag per cell, only for `any` and `count`


class Expression(NamedTuple):
    """A node of the typed tree."""

    kind: str  # "number", "read", "text", a function's name, an operator, "negative"
    type: str
    of: str  # CONSTANT, MOMENT or STEP
    args: tuple[Expression, ...] = ()
    value: float = 0.0  # of a number
    text: str = ""  # of a text; that `says` looks for
    entry: Entry | None = None  # of a value that is read
    viewpoint: Viewpoint | None = None  # of `distance`
    memory: int = -1  # the number of the value that the node remembers over steps; -1: none

    @property
    def reads_caption(self) -> bool:
        """Whether the caption of the step is read in this part of the tree."""
        return self.entry == CAPTION_ENTRY or any(one.reads_caption for one in self.args)


class Program(NamedTuple):
    """A program that has been checked."""

    text: str
    root: Expression
    memories: int  # values that are remembered over steps
    uses: Readable  # the part of a world that the program reads

    @property
    def still(self) -> tuple[Entry, ...]:
        """What `still()` compares; () without it."""
        return tuple(self.uses.entries[name] for name in self.uses.still)

    @property
    def observations(self) -> tuple[str, ...]:
        """The names that rollouts must record."""
        names = {name for entry in self.uses.entries.values() for name in entry.observations}
        return tuple(sorted(names | set(CAPTION_ENTRY.observations if self.root.reads_caption else ())))


def last_of(*parts: Expression) -> str:
    """What a value computed from these parts belongs to, such as a moment: the last of theirs in ORDER."""
    return max((one.of for one in parts), key=ORDER.index)
