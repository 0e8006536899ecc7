"""The explorer: a scripted player that reaches many parts of NetHack without learning.

Its priorities: answer the game's questions; fight adjacent monsters; eat when hungry; rest when badly hurt; take known
stairs down, on some levels at once and on others when everything is explored; walk to the nearest unseen thing or
place; search for hidden doors; walk to a random visited square. It remembers each level for its return.

Sets of squares are the bits of one integer: square (x, y) is bit 80 * y + x. Column 79 is always empty, so that a step
off one side of the map does not arrive at the other. A step of a breadth-first search in all directions is then a
handful of shifts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from nle import nethack

from motif_jax.envs.nethack.game import ACTION_NAMES, BRANCH, EAT_PROMPT, KEYS, STAIRS_LEVEL, TURNS, YES, X, Y

STRIDE = 80
# Action (index in `game.ACTIONS`) -> change of the bit's position.
STEPS = {1: -STRIDE, 2: 1, 3: STRIDE, 4: -1, 5: 1 - STRIDE, 6: 1 + STRIDE, 7: STRIDE - 1, 8: -STRIDE - 1}
DIAGONAL = (5, 6, 7, 8)


def squares(mask: np.ndarray) -> int:
    """The set of true squares. [21, 79] bool -> bits."""
    padded = np.zeros((21, STRIDE), bool)
    padded[:, :79] = mask
    return int.from_bytes(np.packbits(padded, bitorder="little").tobytes(), "little")


def shift(bits: int, by: int) -> int:
    """Moves all squares by the same step."""
    return bits << by if by > 0 else bits >> -by


def beside(bits: int) -> int:
    """The given squares and all their neighbours, including diagonal ones."""
    row = bits | bits << 1 | bits >> 1
    return row | row << STRIDE | row >> STRIDE


def path_to(start: int, goals: int, walkable: int, doors: int) -> list[int]:
    """The actions along a shortest path from `start` to any of `goals`; [] if `goals` cannot be reached.

    No diagonal step enters or leaves a square of `doors`.
    """
    layers = [start]
    seen = start
    while not layers[-1] & goals:
        edge = layers[-1]
        free = edge & ~doors
        straight = edge << 1 | edge >> 1 | edge << STRIDE | edge >> STRIDE
        diagonal = free << STRIDE + 1 | free >> STRIDE + 1 | free << STRIDE - 1 | free >> STRIDE - 1
        reached = (straight | diagonal & ~doors) & walkable & ~seen
        if not reached:
            return []
        seen |= reached
        layers.append(reached)
    at = layers[-1] & goals
    at &= -at
    actions = []
    for layer in reversed(layers[:-1]):
        for action, step in STEPS.items():
            before = shift(at, -step) & layer
            if before and not (action in DIAGONAL and (at | before) & doors):
                actions.append(action)
                at = before
                break
    return actions[::-1]


NO = KEYS.index(ord("n"))  # also: move south-east
DOWN, KICK, EAT, SEARCH = (ACTION_NAMES.index(name) for name in ("down", "kick", "eat", "search"))
HP, MAX_HP, HUNGER = 10, 11, 21
HUNGRY = 2
DESCEND_PROBABILITY = 0.5  # of a level: go down as soon as possible, or explore first

FLOOR, DOOR, HOSTILE, THING, STAIRS, BLANK, TRAP = (1 << bit for bit in range(7))
WALKED_ON = (12, *range(19, 24), 25, *range(27, 32), 33, 35, 36)  # doorways, floors, corridors, stairs, furniture
SYMBOLS = {  # flags of NetHack's symbols: stone, doors (13 and 14 are open), stairs and ladder down
    0: BLANK, **dict.fromkeys(range(13, 17), FLOOR | DOOR), 24: FLOOR | STAIRS, 26: FLOOR | STAIRS,
    **dict.fromkeys(WALKED_ON, FLOOR),
}  # fmt: skip


def _kinds() -> np.ndarray:
    """The flags (FLOOR, DOOR, ...) of every glyph. [MAX_GLYPH] uint16"""
    kinds = np.zeros(nethack.MAX_GLYPH, np.uint16)
    kinds[nethack.GLYPH_MON_OFF : nethack.GLYPH_PET_OFF] = HOSTILE
    kinds[nethack.GLYPH_INVIS_OFF] = HOSTILE
    kinds[nethack.GLYPH_PET_OFF : nethack.GLYPH_INVIS_OFF] = FLOOR
    kinds[nethack.GLYPH_BODY_OFF : nethack.GLYPH_RIDDEN_OFF] = FLOOR
    for glyph in range(nethack.GLYPH_OBJ_OFF, nethack.GLYPH_CMAP_OFF):
        boulder = nethack.OBJ_NAME(nethack.objclass(nethack.glyph_to_obj(glyph))) == "boulder"
        kinds[glyph] = 0 if boulder else THING | FLOOR
    for glyph in range(nethack.GLYPH_CMAP_OFF, nethack.GLYPH_EXPLODE_OFF):
        kinds[glyph] = SYMBOLS.get(nethack.glyph_to_cmap(glyph), TRAP * nethack.glyph_is_trap(glyph))
    return kinds


FLAGS_OF_GLYPHS = _kinds()


@dataclass
class _Level:
    """The explorer's memory of one level. Sets of squares are bits, see the module docstring."""

    eager: bool  # goes down as soon as it can
    visited: int = 0
    stairs: int = 0
    doors: int = 0
    avoided: int = 0  # squares that could not be entered, peaceful monsters
    searched: int = 0  # rounds of searching


class ExplorerPlayer:
    """Plays one game; see the module docstring."""

    frames = ("glyphs",)

    def begin(self, rng: random.Random) -> None:
        self._rng = rng
        self._levels: dict[tuple[int, int], _Level] = {}
        self._path: list[int] = []
        self._expected = self._last_step = 0  # where the last step should have led, and which it was
        self._stuck = self._kicks = self._waits = 0
        self._ate = -1000

    def choose(self, game: Any) -> int:
        if (answer := self._answer(game.message)) is not None:
            return answer
        blstats = game.buffers["blstats"].tolist()
        here = 1 << STRIDE * blstats[Y] + blstats[X]
        number = blstats[BRANCH], blstats[STAIRS_LEVEL]
        if number not in self._levels:
            self._levels[number] = _Level(self._rng.random() < DESCEND_PROBABILITY)
            self._path = []
        level = self._level = self._levels[number]
        level.visited |= here
        self._note_failure(here, game.message)

        kinds = FLAGS_OF_GLYPHS[game.buffers["glyphs"]]  # [21, 79]
        if enemy := self._adjacent_enemy(kinds, blstats[X], blstats[Y], here):
            self._path = []
            return self._go(enemy, here)
        if blstats[HUNGER] >= HUNGRY and blstats[TURNS] - self._ate > 50:
            self._ate = blstats[TURNS]
            return EAT
        if blstats[HP] * 3 < blstats[MAX_HP] and self._waits < 40:
            self._waits += 1
            return SEARCH
        self._waits = 0
        if here & level.stairs and (level.eager or not self._path):
            return DOWN
        if not self._path:
            self._path = self._plan(kinds, here, level)
        if self._path:
            return self._go(self._path.pop(0), here)
        level.searched += 1
        if level.searched % 10:
            return SEARCH
        if level.searched % 40 == 0:
            level.avoided = 0  # doors get kicked again, peaceful monsters move on
        elsewhere = self._rng.choice([bit for bit in range(level.visited.bit_length()) if level.visited >> bit & 1])
        self._path = path_to(here, 1 << elsewhere, level.visited, level.doors) or [self._rng.choice(list(STEPS))]
        return self._go(self._path.pop(0), here)

    def _answer(self, message: bytes) -> int | None:
        if EAT_PROMPT in message:
            return YES
        if b"eat it?" in message or b"eat one?" in message:
            return NO  # food on the floor may be rotten
        if b"Really attack" in message and message.endswith(b"(n) "):  # otherwise it is already answered
            self._level.avoided |= self._expected
            return NO
        if b"direction?" in message:
            return self._last_step or NO
        if b"This door is locked" in message and self._kicks < 8 and self._last_step:
            self._kicks += 1
            return KICK
        return None

    def _note_failure(self, here: int, message: bytes) -> None:
        if self._expected and here != self._expected:
            self._path = []
            self._stuck += 1
            if self._stuck > 2 and b"pit" not in message:
                self._level.avoided |= self._expected
                self._stuck = 0
        else:
            self._stuck = self._kicks = 0
        self._expected = 0

    def _adjacent_enemy(self, kinds: np.ndarray, x: int, y: int, here: int) -> int:
        """Returns the step towards a monster beside the hero; 0 without one."""
        around = kinds[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] & HOSTILE
        if around.sum() <= kinds[y, x] & HOSTILE:  # a fast test; the hero may look like a monster
            return 0
        enemies = squares((kinds & HOSTILE) != 0) & ~self._level.avoided
        return next((action for action, step in STEPS.items() if shift(here, step) & enemies), 0)

    def _plan(self, kinds: np.ndarray, here: int, level: _Level) -> list[int]:
        level.stairs |= squares((kinds & STAIRS) != 0)
        level.doors |= squares((kinds & DOOR) != 0)
        walkable = (squares((kinds & FLOOR) != 0) | level.visited) & ~level.avoided | here
        if level.searched > 24:
            walkable |= squares((kinds & TRAP) != 0)
        doors = level.doors
        if level.eager and level.stairs and (path := path_to(here, level.stairs, walkable, doors)):
            return path
        unseen = beside(squares((kinds & BLANK) != 0))
        things = squares((kinds & THING) != 0)
        goals = (unseen | things) & walkable & ~level.visited
        return path_to(here, goals, walkable, doors) or path_to(here, level.stairs, walkable, doors)

    def _go(self, action: int, here: int) -> int:
        self._last_step = action
        self._expected = shift(here, STEPS[action])
        return action
