"""Levels: BabyAI-Text's, made here from MiniGrid's rooms, and all of MiniGrid's own.

A level has one or several families of missions, each with its own environment. The missions of BabyAI-Text's levels,
with the number of objects that they need beside 8 others, in a room of 8 x 8 cells:

    goto       "go to X"                      1
    pickup     "pick up X"                    1
    open       "open the door"                the key of a locked door to a second room
    putnext    "put X next to Y"              2
    sequence   "pick up X, then go to Y", or "go to Y after you pick up X"   2
    pickups    "pick up X, then pick up Y", or "pick up Y after you pick up X"   2

Some pairs of a colour and a noun are held out: missions of training levels never name them, missions of the test level
name only them. Every object can be reached without moving another.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import gymnasium
from minigrid.core.constants import COLOR_NAMES
from minigrid.core.world_object import Ball, Box, Key, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
    SeqInstr,
)

from motif_jax.envs.babyai.level_settings import FAMILIES, FRENCH_LEVELS, short_name
from motif_jax.envs.babyai.words import HELD_OUT
from motif_jax.structs import UserError

LEVEL_FLAG = "--config.env.babyai.level"
NEEDED = {"goto": 1, "pickup": 1, "open": 0, "putnext": 2, "sequence": 2, "pickups": 2}  # objects, without a key
DOOR_COLOURS = {"train": ("yellow", "green", "blue", "purple"), "test": ("red", "grey")}
ORDERS = ("before", "after")

KINDS = {"key": Key, "ball": Ball, "box": Box}

Cell = tuple[int, int]
Maker = Callable[[], RoomGridLevel]


class LocalLevel(RoomGridLevel):
    """One family of missions of BabyAI-Text in one room, or in two for `open`."""

    instrs: Instr

    def __init__(self, family: str, pairs: str, orders: Sequence[str] = ORDERS, others: int = 8):
        """Makes the environment.

        Args:
          family: a key of NEEDED.
          pairs: the pairs of a colour and a noun that missions name: "train", "test", or "all".
          orders: the possible orders of the two parts of a sequence, a subset of ORDERS.
          others: number of objects in the room that the mission does not need.
        """
        self._family, self._pairs, self._orders = family, pairs, orders
        self._things = NEEDED[family] + others
        super().__init__(room_size=8, num_rows=1, num_cols=2 if family == "open" else 1)

    def gen_mission(self) -> None:
        """Fills the rooms and chooses the mission."""
        if self._family == "open":
            self.instrs = self._open()
        else:
            self.instrs = self._instruct(self._furnish())
        text = self.instrs.surface(self)
        named = {f"{thing.color} {thing.type}" for thing in _descriptions(self.instrs)}
        if self._pairs == "train" and any(pair in text for pair in HELD_OUT):
            raise RejectSampling("the mission names a pair that is held out")
        if self._pairs == "test" and not named <= {*HELD_OUT}:
            raise RejectSampling("the mission names a pair that is not held out")

    def _open(self) -> Instr:
        """Places a locked door to the other room, and its key and the player in this one."""
        locked = self._rand_int(0, 2)
        here = 1 - locked
        color = self._rand_elem(DOOR_COLOURS[self._pairs])
        self.add_door(locked, 0, door_idx=2 if locked else 0, color=color, locked=True)
        self.add_object(here, 0, "key", color)
        self.add_distractors(here, 0, num_distractors=self._things, all_unique=False)
        self.place_agent(here, 0)
        self.check_objs_reachable()
        named = self._pairs == "test" or self._rand_bool()
        return OpenInstr(ObjDesc("door", color if named else None))

    def _furnish(self) -> list[WorldObj]:
        """Places the player, and objects in cells not beside it, all reachable without moving another.

        The distribution of rooms is that of `add_distractors` with `check_objs_reachable`. Reachability is tested on
        the cells, before objects are made, because most rooms with 16 objects are rejected.
        """
        inside = [(x, y) for x in range(1, self.width - 1) for y in range(1, self.height - 1)]
        while True:
            self.place_agent()
            player = int(self.agent_pos[0]), int(self.agent_pos[1])
            free = [cell for cell in inside if abs(cell[0] - player[0]) + abs(cell[1] - player[1]) > 1]
            chosen = [free[at] for at in self.np_random.permutation(len(free))[: self._things]]
            if all_reached(player, {*inside} - {*chosen}, chosen):
                break
        things = []
        for cell in chosen:
            color, kind = self._rand_elem(COLOR_NAMES), self._rand_elem([*KINDS])
            things.append(KINDS[kind](color))
            self.put_obj(things[-1], *cell)
        self.get_room(0, 0).objs += things
        return things

    def _instruct(self, things: Sequence[WorldObj]) -> Instr:
        first = self._rand_elem(things)
        one = ObjDesc(first.type, first.color)
        if self._family in ("goto", "pickup"):
            return (GoToInstr if self._family == "goto" else PickupInstr)(one)
        other = self._rand_elem(things)
        if len(one.find_matching_objs(self)[0]) == 1:
            while (other.type, other.color) == (first.type, first.color):
                other = self._rand_elem(things)
        two = ObjDesc(other.type, other.color)
        if self._family == "putnext":
            return PutNextInstr(one, two)
        then = (PickupInstr if self._family == "pickups" else GoToInstr)(two)
        if self._rand_elem(self._orders) == "before":
            return BeforeInstr(PickupInstr(one), then)
        return AfterInstr(then, PickupInstr(one))


def all_reached(start: Cell, free: set[Cell], things: Iterable[Cell]) -> bool:
    """Whether each object lies beside a free cell that can be reached from the start."""
    reached, todo = {start}, [start]
    while todo:
        x, y = todo.pop()
        near = {(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)}
        todo += near & free - reached
        reached |= near
    return reached.issuperset(things)


def _mixed(pairs: str, others: int = 8) -> tuple[Maker, ...]:
    return tuple(lambda family=family: LocalLevel(family, pairs, others=others) for family in FAMILIES)


def _sequence(*orders: str) -> tuple[Maker, ...]:
    return (lambda: LocalLevel("sequence", "train", orders),)


LEVELS: dict[str, tuple[Maker, ...]] = {  # in addition to MiniGrid's: an environment per family
    "MixedTrainLocal": _mixed("train"),
    "MixedTestLocal": _mixed("test"),
    "MixedTrainLocalN0": _mixed("train", others=0),
    "PickUpSeqGoToLocal": _sequence(*ORDERS),
    "PickUpThenGoToLocal": _sequence("before"),
    "GoToAfterPickUpLocal": _sequence("after"),
    "PickUpSeqPickUpLocal": (lambda: LocalLevel("pickups", "train"),),
    "GoToLocalS8N16": (lambda: LocalLevel("goto", "all", others=15),),
}


def makers_of(level: str) -> tuple[Maker, ...]:
    """Returns a maker of environments for each family of a level; raises UserError for an unknown level."""
    known = {short_name(name): name for name in gymnasium.registry if name.startswith("BabyAI-")}
    name = FRENCH_LEVELS.get(short_name(level), short_name(level))
    if name in LEVELS:
        return LEVELS[name]
    if name in known:
        return (lambda: cast(RoomGridLevel, gymnasium.make(known[name], disable_env_checker=True).unwrapped),)
    names = (*LEVELS, *FRENCH_LEVELS, *known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    ours = ", ".join((*LEVELS, *FRENCH_LEVELS))
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {ours}, or MiniGrid's own"
    raise UserError(f"unknown level {level!r:.100} ({LEVEL_FLAG}): {hint}")


def family_of(mission: Instr) -> int:
    """Returns the family of any level's mission, as an index into FAMILIES."""
    for name, kind in (("goto", GoToInstr), ("pickup", PickupInstr), ("open", OpenInstr), ("putnext", PutNextInstr)):
        if isinstance(mission, kind):
            return FAMILIES.index(name)
    return FAMILIES.index("sequence")


def _descriptions(mission: Instr) -> list[ObjDesc]:
    if isinstance(mission, SeqInstr):
        return [*_descriptions(mission.instr_a), *_descriptions(mission.instr_b)]
    return [getattr(mission, name) for name in ("desc", "desc_move", "desc_fixed") if hasattr(mission, name)]
