"""The levels: those of BabyAI-Text, which are made here from MiniGrid's rooms, and all of MiniGrid's own.

A level has one or several families of missions, and each family its environment. The missions of BabyAI-Text's levels:

    goto       "go to X"                      9 things in a room of 8 x 8 cells
    pickup     "pick up X"                    9
    open       "open the door"                8, and the key of a locked door to a second room
    putnext    "put X next to Y"              10
    sequence   "pick up X, then go to Y", or "go to Y after you pick up X"   10
    pickups    "pick up X, then pick up Y", or "pick up Y after you pick up X"   10

Some pairs of a colour and a noun never stand in the missions of training levels, and are all that stands in those of
the test level. Everything can be reached without anything being moved.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import gymnasium
from minigrid.envs.babyai import GoToLocal
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

from motif_jax.envs.babyai.settings import FRENCH_LEVELS, short_name
from motif_jax.structs import UserError

LEVEL_FLAG = "--config.env.babyai.level"
FAMILIES = ("goto", "pickup", "open", "putnext", "sequence")  # the figure `family` is the place in this list
THINGS = {"goto": 9, "pickup": 9, "open": 8, "putnext": 10, "sequence": 10, "pickups": 10}
HELD_OUT = ("yellow box", "red key", "green ball", "red door", "grey door")
DOOR_COLOURS = {"train": ("yellow", "green", "blue", "purple"), "test": ("red", "grey")}
ORDERS = ("before", "after")

Maker = Callable[[], RoomGridLevel]


class LocalLevel(RoomGridLevel):
    """One family of missions of BabyAI-Text in one room, or in two for `open`."""

    def __init__(self, family: str, pairs: str, orders: Sequence[str] = ORDERS):
        """Makes the environment.

        Args:
          family: a key of THINGS.
          pairs: which pairs of a colour and a noun stand in missions: "train", "test", or "all".
          orders: of the two parts of a sequence, in words.
        """
        self._family, self._pairs, self._orders = family, pairs, orders
        super().__init__(room_size=8, num_rows=1, num_cols=2 if family == "open" else 1)

    def gen_mission(self) -> None:
        """Fills the rooms and chooses the mission; see `RoomGridLevel`."""
        if self._family == "open":
            self.instrs = self._open()
        else:
            self.place_agent()
            things = self.add_distractors(num_distractors=THINGS[self._family], all_unique=False)
            self.check_objs_reachable()
            self.instrs = self._instruct(things)
        text = self.instrs.surface(self)
        named = [thing for pair in _descriptions(self.instrs) if (thing := f"{pair.color} {pair.type}")]
        if self._pairs == "train" and any(pair in text for pair in HELD_OUT):
            raise RejectSampling("the mission names a pair that is held out")
        if self._pairs == "test" and not {*named} <= {*HELD_OUT}:
            raise RejectSampling("the mission names a pair that is not held out")

    def _open(self) -> Instr:
        """A locked door to the other room, its key, and the player beside it."""
        locked = self._rand_int(0, 2)
        here = 1 - locked
        color = self._rand_elem(DOOR_COLOURS[self._pairs])
        self.add_door(locked, 0, door_idx=2 if locked else 0, color=color, locked=True)
        self.add_object(here, 0, "key", color)
        self.add_distractors(here, 0, num_distractors=THINGS["open"], all_unique=False)
        self.place_agent(here, 0)
        self.check_objs_reachable()
        named = self._pairs == "test" or self._rand_bool()
        return OpenInstr(ObjDesc("door", color if named else None))

    def _instruct(self, things: Sequence) -> Instr:
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


def _mixed(pairs: str) -> tuple[Maker, ...]:
    return tuple(lambda family=family: LocalLevel(family, pairs) for family in FAMILIES)  # type: ignore[misc]


def _sequence(*orders: str) -> tuple[Maker, ...]:
    return (lambda: LocalLevel("sequence", "train", orders),)


LEVELS: dict[str, tuple[Maker, ...]] = {  # beside MiniGrid's own: an environment for each family
    "MixedTrainLocal": _mixed("train"),
    "MixedTestLocal": _mixed("test"),
    "PickUpSeqGoToLocal": _sequence(*ORDERS),
    "PickUpThenGoToLocal": _sequence("before"),
    "GoToAfterPickUpLocal": _sequence("after"),
    "PickUpSeqPickUpLocal": (lambda: LocalLevel("pickups", "all"),),
    "GoToLocalS8N16": (lambda: GoToLocal(num_dists=16),),
}


def makers_of(level: str) -> tuple[Maker, ...]:
    """What makes the environments of a level, one for each family; raises UserError for an unknown level."""
    known = {short_name(name): name for name in gymnasium.registry if name.startswith("BabyAI-")}
    name = FRENCH_LEVELS.get(short_name(level), short_name(level))
    if name in LEVELS:
        return LEVELS[name]
    if name in known:
        return (lambda: gymnasium.make(known[name], disable_env_checker=True).unwrapped,)  # type: ignore[return-value]
    names = (*LEVELS, *FRENCH_LEVELS, *known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = (
        f"did you mean {near[0]!r}?" if near else f"choose from {', '.join((*LEVELS, *FRENCH_LEVELS))}, or MiniGrid's"
    )
    raise UserError(f"unknown level {level!r:.100} ({LEVEL_FLAG}): {hint}")


def family_of(mission: Instr) -> int:
    """The family of a mission, of any level."""
    for name, kind in (("goto", GoToInstr), ("pickup", PickupInstr), ("open", OpenInstr), ("putnext", PutNextInstr)):
        if isinstance(mission, kind):
            return FAMILIES.index(name)
    return FAMILIES.index("sequence")


def _descriptions(mission: Instr) -> list[ObjDesc]:
    if isinstance(mission, SeqInstr):
        return [*_descriptions(mission.instr_a), *_descriptions(mission.instr_b)]
    return [getattr(mission, name) for name in ("desc", "desc_move", "desc_fixed") if hasattr(mission, name)]
