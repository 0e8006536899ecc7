"""Levels, and one game: its seed determines an episode, and observations are computed on demand.

Levels are BabyAI-Text's, made here from MiniGrid's rooms, and all of MiniGrid's own. A level has one or several
families of missions, each with its own environment. The missions of BabyAI-Text's levels, with the number of objects
that they need beside 8 others, in a room of 8 x 8 cells:

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

import collections
import functools
import operator
import random
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_NAMES, DIR_TO_VEC, OBJECT_TO_IDX
from minigrid.core.world_object import Ball, Box, Key, Wall, WorldObj
from minigrid.envs.babyai.core import verifier
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from motif_jax.envs.babyai.level_settings import FAMILIES, FRENCH_LEVELS, MISSION_BYTES, BabyAISettings, short_name
from motif_jax.envs.babyai.words import HELD_OUT, caption, describe, prompt_text, shuffle_words
from motif_jax.envs.gym_world import SEEDS, quiet
from motif_jax.envs.sequential import SequentialGame
from motif_jax.envs.world import GREY, SCREEN_SHAPE, WHITE, GameSeed, Pieces, Screen, fill_screen, suggest, to_row
from motif_jax.screens import REVERSED
from motif_jax.structs import EndStatus, UserError

EMPTY = bytes([OBJECT_TO_IDX["empty"], 0, 0])


class View:
    """MiniGrid's view of the agent, but several times as fast: `env.gen_obs = View(env)` for an unwrapped `env`.

    MiniGrid cuts the cells in view out of its grid, turns them up to four times, and finds the visible ones cell by
    cell. Here, both the places of the cells and how light spreads along a row are looked up. For levels whose agent
    does not see through walls.
    """

    def __init__(self, env: Any):
        self.env, self.size = env, env.agent_view_size
        self.outside = Wall()

    def __call__(self) -> dict[str, Any]:
        """The observation: cells in view, direction and mission."""
        env, size, out = self.env, self.size, bytearray(3 * self.size**2)
        grid, (x, y) = env.grid, env.agent_pos
        cells = cells_at(size, grid.width, grid.height, int(x), int(y), env.agent_dir)([*grid.grid, self.outside])
        seen = 1 << size // 2  # bits of a row, beginning with the agent's
        for row in reversed(range(size)):
            line = cells[row * size : (row + 1) * size]
            opaque = 0
            for column, cell in enumerate(line):
                if cell is not None and not cell.see_behind():
                    opaque |= 1 << column
            columns, seen = spread(size, seen, opaque)
            for column in columns:
                cell, at = line[column], 3 * (column * size + row)
                out[at : at + 3] = EMPTY if cell is None else bytes(cell.encode())
            if not seen:
                break
        at = 3 * (size // 2 * size + size - 1)  # the agent's own cell shows what it carries
        out[at : at + 3] = bytes(env.carrying.encode()) if env.carrying else EMPTY
        image = np.frombuffer(out, np.uint8).reshape(size, size, 3)
        return {"image": image, "direction": env.agent_dir, "mission": env.mission}


@functools.cache
def cells_at(size: int, width: int, height: int, x: int, y: int, direction: int) -> Callable[..., tuple[Any, ...]]:
    """A function from all cells, and one for those outside, to those in view, row by row from the furthest."""
    (dx, dy), places = DIR_TO_VEC[direction].tolist(), []
    for ahead in reversed(range(size)):
        for side in range(-(size // 2), size // 2 + 1):
            i, j = x + ahead * dx - side * dy, y + ahead * dy + side * dx
            places.append(j * width + i if 0 <= i < width and 0 <= j < height else width * height)
    return operator.itemgetter(*places)


@functools.cache
def spread(size: int, seen: int, opaque: int) -> tuple[list[int], int]:
    """The visible columns of a row, and the bits of the row ahead that are seen through it.

    `seen`: bits of this row that are seen through the one before. `opaque`: bits of cells that block the view.
    """
    ahead = 0
    for columns, step in ((range(size - 1), 1), (range(size - 1, 0, -1), -1)):
        for column in columns:
            if seen >> column & ~opaque >> column & 1:
                seen |= 1 << column + step
                ahead |= 1 << column | 1 << column + step
    return [column for column in range(size) if seen >> column & 1], ahead


NEEDED = {"goto": 1, "pickup": 1, "open": 0, "putnext": 2, "sequence": 2, "pickups": 2}  # objects, without a key
DOOR_COLOURS = {"train": ("yellow", "green", "blue", "purple"), "test": ("red", "grey")}

KINDS = {"key": Key, "ball": Ball, "box": Box}

Cell = tuple[int, int]
Maker = Callable[[], RoomGridLevel]
COLOURS = {"red": 9, "green": 10, "blue": 12, "purple": 13, "yellow": 11, "grey": 7}  # of a terminal
SHAPES = {"ball": "o", "key": "k", "box": "="}
DARK = 8
ARROWS = ">v<^"
GAP = 3  # columns to the right of the grid
NOTHING = 6  # MiniGrid's action that does nothing: the effect of any action beyond the first six
FAILED = "the mission has failed"  # in levels that allow no mistakes


class LocalLevel(RoomGridLevel):
    """One family of missions of BabyAI-Text in one room, or in two for `open`."""

    instrs: verifier.Instr

    def __init__(self, family: str, pairs: str, orders: Sequence[str] = ("before", "after"), others: int = 8):
        """Makes the environment of a family, a key of NEEDED.

        `pairs`: "train", "test" or "all": the pairs of a colour and a noun that missions name. `orders`: the possible
        ones of the two parts of a sequence. `others`: number of objects that the mission does not need.
        """
        self._family, self._pairs, self._orders = family, pairs, orders
        self._things = NEEDED[family] + others
        super().__init__(room_size=8, num_rows=1, num_cols=2 if family == "open" else 1)

    def gen_mission(self) -> None:
        self.instrs = self._open() if self._family == "open" else self._instruct(self._furnish())
        text = self.instrs.surface(self)
        named = {f"{thing.color} {thing.type}" for thing in _descriptions(self.instrs)}
        held_out = any(pair in text for pair in HELD_OUT) if self._pairs == "train" else not named <= {*HELD_OUT}
        if self._pairs != "all" and held_out:
            raise RejectSampling(f"the mission names a pair that is not for {self._pairs}")

    def _open(self) -> verifier.Instr:
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
        return verifier.OpenInstr(verifier.ObjDesc("door", color if named else None))

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

    def _instruct(self, things: Sequence[WorldObj]) -> verifier.Instr:
        thing = self._rand_elem(things)
        first = verifier.ObjDesc(thing.type, thing.color)
        if self._family in ("goto", "pickup"):
            return (verifier.GoToInstr if self._family == "goto" else verifier.PickupInstr)(first)
        other = self._rand_elem(things)
        if len(first.find_matching_objs(self)[0]) == 1:
            while (other.type, other.color) == (thing.type, thing.color):
                other = self._rand_elem(things)
        second = verifier.ObjDesc(other.type, other.color)
        if self._family == "putnext":
            return verifier.PutNextInstr(first, second)
        then = (verifier.PickupInstr if self._family == "pickups" else verifier.GoToInstr)(second)
        if self._rand_elem(self._orders) == "before":
            return verifier.BeforeInstr(verifier.PickupInstr(first), then)
        return verifier.AfterInstr(then, verifier.PickupInstr(first))


def all_reached(start: Cell, free: set[Cell], things: Iterable[Cell]) -> bool:
    """Whether each object lies beside a free cell that can be reached from the start."""
    reached, todo = {start}, [start]
    while todo:
        x, y = todo.pop()
        near = {(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)}
        todo += near & free - reached
        reached |= near
    return reached.issuperset(things)


LEVELS: dict[str, tuple[Maker, ...]] = {  # in addition to MiniGrid's: an environment per family
    "MixedTrainLocal": tuple(functools.partial(LocalLevel, family, "train") for family in FAMILIES),
    "MixedTestLocal": tuple(functools.partial(LocalLevel, family, "test") for family in FAMILIES),
    "MixedTrainLocalN0": tuple(functools.partial(LocalLevel, family, "train", others=0) for family in FAMILIES),
    "PickUpSeqGoToLocal": (functools.partial(LocalLevel, "sequence", "train"),),
    "PickUpThenGoToLocal": (functools.partial(LocalLevel, "sequence", "train", ("before",)),),
    "GoToAfterPickUpLocal": (functools.partial(LocalLevel, "sequence", "train", ("after",)),),
    "PickUpSeqPickUpLocal": (functools.partial(LocalLevel, "pickups", "train"),),
    "GoToLocalS8N16": (functools.partial(LocalLevel, "goto", "all", others=15),),
}


def makers_of(level: str) -> tuple[Maker, ...]:
    """Returns a maker of environments for each family of a level; raises UserError for an unknown level."""
    minigrid_ids = {short_name(name): name for name in gymnasium.registry if name.startswith("BabyAI-")}
    name = FRENCH_LEVELS.get(short_name(level), short_name(level))
    if name in LEVELS:
        return LEVELS[name]
    if name in minigrid_ids:
        return (lambda: cast(RoomGridLevel, gymnasium.make(minigrid_ids[name], disable_env_checker=True).unwrapped),)
    ours = (*LEVELS, *FRENCH_LEVELS)
    hint = suggest(name, (*ours, *minigrid_ids), f"choose from {', '.join(ours)}, or MiniGrid's own")
    raise UserError(f"unknown level {level!r:.100} (--config.env.babyai.level): {hint}")


def _descriptions(mission: verifier.Instr) -> list[verifier.ObjDesc]:
    if isinstance(mission, verifier.SeqInstr):
        return [*_descriptions(mission.instr_a), *_descriptions(mission.instr_b)]
    return [getattr(mission, name) for name in ("desc", "desc_move", "desc_fixed") if hasattr(mission, name)]


def draw_grid(env: RoomGridLevel, mission: str, caption: str, sentences: Sequence[str]) -> Screen:
    """Draws the mission, the caption, the grid with cells in view brighter, and the sentences.

    A locked door is a reversed `+`, a closed one a `+`, an open one a `'`.
    """
    rows, columns = SCREEN_SHAPE
    player, ahead, right, size = tuple(map(int, env.agent_pos)), env.dir_vec, env.right_vec, env.agent_view_size
    corner = env.agent_pos + ahead * (size - 1) - right * (size // 2)  # of the view
    _, mask = env.gen_obs_grid()
    in_view = {tuple((corner - ahead * j + right * i).tolist()) for i, j in np.argwhere(mask)}
    drawn: list[Pieces] = [[(mission, WHITE)], [(caption, GREY)], [], *([] for _ in range(rows))]
    top = 3 if env.height + 3 <= rows else 2  # rows above the grid
    wide = 2 if 2 * env.width + GAP + 24 <= columns else 1  # columns of a cell
    for y in range(env.height):
        shapes = [_cell(env.grid.get(x, y), (x, y) in in_view) for x in range(env.width)]
        for x, (shape, color) in enumerate(shapes):
            joined = wide == 2 and shape == "#" and x + 1 < env.width and shapes[x + 1][0] == "#"
            if (x, y) == player:
                shape, color = ARROWS[env.agent_dir], WHITE
            drawn[top + y] += [(shape, color), (shape if joined else " " * (wide - 1), color if joined else 0)]
    left = wide * env.width + GAP
    lines = [line for text in sentences for line in textwrap.wrap(text, columns - left, subsequent_indent="  ")]
    for row, line in zip(drawn[top:], lines):  # noqa: B905  (what does not fit on the screen is left out)
        row += [(" " * (GAP if row else left), 0), (line, GREY)]
    return fill_screen(drawn, (min(top + player[1], rows - 1), wide * player[0]))


def _cell(thing: Any, seen: bool) -> tuple[str, int]:
    if thing is None or thing.type == "wall":
        return "#" if thing else ".", GREY if seen else DARK
    color = COLOURS.get(thing.color, GREY)
    if thing.type == "door":
        return "'" if thing.is_open else "+", color + REVERSED * thing.is_locked
    return SHAPES.get(thing.type, "?"), color


class LazyObservations(dict[str, Any]):
    """The observations of a moment by name; the prompt is made on first access."""

    def __init__(self, make_prompt: Callable[[], Any], **others: Any):
        super().__init__(**others)
        self._make_prompt = make_prompt

    def __missing__(self, name: str) -> Any:
        assert name == "prompt"
        self[name] = self._make_prompt()
        return self[name]


class BabyAIGame(SequentialGame):
    """Implements `world.Game`; `SequentialVector` and the bot also use `seen`, `num_actions` and `env`."""

    def __init__(self, settings: BabyAISettings):
        self._settings, self._language, self._rewrite = settings, settings.words, settings.rewrite
        self._names = settings.action_names
        self.num_actions = len(self._names)
        makers = makers_of(settings.level)
        self._envs = [_make(maker) for maker in makers]
        self.env: Any = self._envs[0]
        # The environments in which the bot plays the same episodes, by family.
        self._twin = functools.cache(lambda family: _make(makers[family]))
        self._family: int | None = None  # of all episodes; None: drawn for each episode
        # The last actions and observations. The first action of an episode is not shown.
        self._moments = collections.deque[tuple[str, Callable[[], list[str]]]](maxlen=settings.window)

    def keep_family(self, seed: int) -> None:
        self._family = random.Random(seed).randrange(len(self._envs))

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        family = random.Random(seed.core).randrange(len(self._envs)) if self._family is None else self._family
        self.env, self._drawn, self._seed = self._envs[family], family, seed.core
        self._bot_steps: int | None = None
        with quiet():  # rejected rooms are printed
            observation, _ = self.env.reset(seed=seed.core % SEEDS)
        if self.env.carrying:  # some levels hand the player an object after the observation was made
            observation = self.env.gen_obs()
        self.start_episode(episode)
        self.mission = str(self.env.mission)
        if self._settings.mission == "shuffled":
            self.mission = shuffle_words(self.mission, random.Random(seed.core + 1))  # not as the family is drawn
        self._mission = to_row(self.mission, MISSION_BYTES)
        self._goal = self._settings.goal(self.mission)
        self._moments.clear()
        self._look(None, 0, observation["image"])

    def step(self, action: int) -> float:
        observation, given, terminated, truncated, _ = self.env.step(min(int(action), NOTHING))
        reward = float(given)
        self.count_step(reward)
        if terminated:
            self.finish(reward > 0, FAILED)
        elif truncated or self._steps >= self._settings.max_episode_steps:
            self.end = EndStatus.ABORTED
        self._look(self._image, int(action), observation["image"])
        return reward

    def measure(self) -> tuple[float, ...]:
        if self._bot_steps is None:
            self._bot_steps = self._ask_the_bot() if self._seed % 2 else 0
        kinds = verifier.GoToInstr, verifier.PickupInstr, verifier.OpenInstr, verifier.PutNextInstr  # else: a sequence
        matches = (index for index, kind in enumerate(kinds) if isinstance(self.env.instrs, kind))
        return next(matches, len(kinds)), self._bot_steps

    def screen(self) -> Screen:
        sentences = [self._rewrite(sentence) for sentence in self._moments[-1][1]()]
        return draw_grid(self.env, self._rewrite(self._goal), self.message.decode("latin-1"), sentences)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _look(self, before: np.ndarray | None, action: int, image: np.ndarray) -> None:
        self._image = image
        sentences = functools.cache(lambda: describe(image, self._language, self._settings.faithful_walls))
        self._moments.append((self._names[action], sentences))
        text = caption(before, min(action, NOTHING), image, self._success)
        shown = {"image": image, "mission": self._mission} | self.show_caption(text.encode("latin-1"))
        self.seen = LazyObservations(self._make_prompt, **shown)

    def _make_prompt(self) -> np.ndarray:
        """The prompt of this moment as UTF-8 padded with zeros. [L] uint8"""
        moments = [(action, sentences()) for action, sentences in self._moments]
        text = self._rewrite(prompt_text(self._language, self._names, self._goal, moments))
        length = self._settings.prompt_length
        if (size := len(text.encode())) > length:
            flags = "--config.env.babyai.prompt_bytes, .window"
            raise UserError(f"a prompt of {size:,} bytes does not fit into {length:,} ({flags}): {text[:100]!r}...")
        return to_row(text, length)

    def _ask_the_bot(self) -> int:
        """Returns the steps that the planner needs in this episode; 0 if it fails."""
        twin = self._twin(self._drawn)
        with quiet():
            twin.reset(seed=self._seed % SEEDS)
        for action in plan(twin):
            _, reward, terminated, truncated, _ = twin.step(action)
            if terminated or truncated:
                return twin.step_count if float(reward) > 0 else 0
        return 0


def _make(maker: Maker) -> RoomGridLevel:
    with quiet():
        env: Any = maker()
    env.gen_obs = View(env)
    return env


# MiniGrid's planner, which solves nearly all levels, as a scripted player and as a measure of a mission's length.
#
# The planner has the player's view and remembers it. It is deterministic. It cannot solve the levels in
# `world.NOT_FOR_THE_BOT`, and rarely gives up in others: it raises one of ERRORS, or adds plans without end. The player
# then moves at random until the episode ends.

MOST_PLANS = 200  # for one action; a dozen is common
ERRORS = (AssertionError, DisappearedBoxError, AttributeError, TypeError, IndexError)


class Plans(list[Any]):
    """The planner's stack of plans, which counts additions."""

    added = 0

    def append(self, plan: Any) -> None:
        """Adds a plan; raises IndexError above MOST_PLANS additions since `added` was set to 0."""
        self.added += 1
        if self.added > MOST_PLANS:
            raise IndexError("the planner does not arrive at an action")
        super().append(plan)


def plan(env: RoomGridLevel) -> Iterator[int]:
    """Yields MiniGrid's numbers of actions, from an environment just reset until the planner gives up.

    Every step must follow the plan.
    """
    bot = BabyAIBot(env)
    plans = bot.stack = Plans(bot.stack)
    while True:
        plans.added = 0
        try:
            action = int(bot.replan())
        except ERRORS:
            return
        if action == Actions.done:  # the planner thinks it is done, but the episode goes on
            return
        yield action


class BotPlayer:
    """The planner as a `ScriptedPlayer`."""

    def begin(self, rng: random.Random) -> None:
        """Starts a new episode, before the game is reset."""
        self._rng = rng
        self._plan: Iterator[int] | None = None

    def choose(self, game: Any) -> int:
        self._plan = self._plan or plan(game.env)
        action = next(self._plan, None)
        return self._rng.randrange(game.num_actions) if action is None else action
