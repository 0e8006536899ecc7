"""A worker plays groups of games at the parent's command, and its process never loads JAX. Here is also the protocol
between the two: the sizes of a pool, its shared arrays, and the messages in the pipes.

A slot is one rollout of one group of E games: T steps and the T + 1 observations around them. `Worker` holds the games
and handles messages, in its own process (`main`) or, for debugging, in the parent (`pool.InlineWorker`).
"""

from __future__ import annotations

import collections
import ctypes
import enum
import fcntl
import functools
import gc
import json
import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.players import ScriptedPlayers
from motif_jax.actors.recorder import RecordedGame
from motif_jax.envs.own_code import WORLD_FLAG, as_failure, check_observations, check_rewards, owner
from motif_jax.envs.world import Rows, SeedStream, World, step_specs
from motif_jax.envs.worlds import make_world
from motif_jax.structs import COMMON, ArraySpec, EpisodeInfo, UserError
from motif_jax.system.errors import find_refusal

MESSAGE_FORMAT = struct.Struct("<BxHi")  # operation, group, slot (or length of the text that follows an ERROR)

GAME = "game"  # an array that a batch adds to those of its rollouts


class Op(enum.IntEnum):
    """Messages between parent and worker."""

    SLOT = 1  # parent: write your next rollout here
    ACT = 2  # parent: your actions are in shared memory
    READY = 3  # worker: a row of observations waits for actions
    FULL = 4  # worker: this slot is complete
    ERROR = 5  # worker: a Python exception; a report in JSON follows


class Request(NamedTuple):
    """A group that waits for actions on the observations in row `step` of `slot`."""

    worker: int
    group: int
    slot: int
    step: int
    generation: int  # of the worker (`WorkerHandle.generation`)


class FilledSlot(NamedTuple):
    """A finished rollout of a group; it belongs to the caller until it is released."""

    worker: int
    group: int
    slot: int


class Ended(NamedTuple):
    """An episode that ended in a slot."""

    step: int
    game: int
    info: EpisodeInfo


class Layout(NamedTuple):
    """Configuration of a pool, sent to every worker as JSON, and so with plain values."""

    env: dict[str, Any]  # the config's section, from which each worker makes its world
    observations: tuple[tuple[str, ArraySpec], ...]  # recorded arrays
    action: ArraySpec  # of one action
    num_figures: int  # of an episode, beside those of every world
    num_workers: int  # W; 1 if the games run in the parent
    groups: int  # G per worker: one group's games step while the other's wait for their actions
    group_size: int  # E games that step together
    rollout_length: int  # T
    slots_per_group: int = 2  # rollouts that worker and parent hold at the same time: one is written, one waits
    player: str = ""  # scripted players in the workers; "": the parent sends the actions
    seed: int = 0
    stream: int = SeedStream.TRAIN  # of game seeds
    outputs: tuple[tuple[str, ArraySpec], ...] = ()  # the policy's arrays per action
    starts: tuple[tuple[str, ArraySpec], ...] = ()  # the policy's arrays per rollout, from before the first action
    warmup_steps: int = 0  # a game begins with up to this many random actions, so that games do not start in step
    episodes_per_seed: int = 1  # consecutive episodes that begin alike: with the same seed, and number for the game
    waits: bool = False  # whether games may get the action WAIT
    leased: bool = False  # the parent gives each group the numbers of its episodes, in `redo`
    record: str = ""  # directory for recordings of every episode (`recorder.RecordedGame`), or ""

    @property
    def num_slots(self) -> int:  # S
        return self.num_workers * self.groups * self.slots_per_group

    def check_names(self) -> None:
        """Raises UserError if an observation has the name of another array of a pool or a batch."""
        taken = {*self._replace(observations=()).specs(), GAME}
        if names := [name for name, _ in self.observations if name in taken]:
            what = f"the world {self.env.get('world')!r} gives an observation called {names[0]!r}, a name that is taken"
            raise UserError(f"{what}: rename it, in gymnasium with a wrapper ({WORLD_FLAG})")

    def row_specs(self) -> dict[str, tuple[int, ArraySpec]]:
        """Returns the number of rows per slot (T, T + 1 or 1), and the spec of a row for one game, by array."""
        steps = self.rollout_length
        rows = {"first": (steps + 1, ArraySpec((), "bool"))}  # whether the observation begins an episode
        rows |= {key: (steps, spec) for key, spec in {**step_specs(self.action), **dict(self.outputs)}.items()}
        for key, spec in self.observations:
            rows[key] = (steps if key.startswith("event_") else steps + 1, spec)
        return rows | {key: (1, spec) for key, spec in self.starts}

    def specs(self) -> dict[str, ArraySpec]:
        """All arrays of the pool; rollouts are [S, rows, E, ...]."""
        games = (self.num_workers, self.groups, self.group_size)
        episodes = (*games[:2], (self.rollout_length + 1) * self.group_size)
        specs = {
            "next_episode": ArraySpec((1,), "int64"),
            "actions": ArraySpec((*games, *self.action.shape), self.action.dtype),
            # Numbers of episodes plus 1; 0 is empty. If the worker dies, the episodes in these three lists are lost.
            "playing": ArraySpec(games, "int64"),  # the current episode of each game
            "undelivered": ArraySpec(episodes, "int64"),  # episodes that ended in the current slot
            # Episodes lost with an earlier worker, and those that another host has given, to play before new ones.
            "redo": ArraySpec((*games[:2], (self.rollout_length + 3) * self.group_size), "int64"),
            "stepping": ArraySpec(games[:2], "int64"),  # the game that is inside the engine, plus 1
            "played": ArraySpec(games[:2], "int64"),  # steps in the current slot
            "waited_s": ArraySpec((self.num_workers,), "float64"),  # idle time of the worker
            "beat": ArraySpec((self.num_workers,), "int64"),  # number of heartbeats
            "handled": ArraySpec((self.num_workers,), "int64"),  # counts handled messages of the parent
        }
        for key, (rows, spec) in self.row_specs().items():
            specs[key] = ArraySpec((self.num_slots, rows, self.group_size, *spec.shape), spec.dtype)
        # Episodes that ended in the slot: their number, and their summaries (`EpisodeInfo.as_row`).
        specs["num_episodes"] = ArraySpec((self.num_slots,), "int64")
        ends = self.rollout_length * self.group_size
        specs["ended_at"] = ArraySpec((self.num_slots, ends, 2), "int32")  # step, game
        specs["episodes"] = ArraySpec((self.num_slots, ends, COMMON + self.num_figures), "float64")
        return specs


ALIGNMENT = 64  # bytes: two arrays never share a cache line


class SharedArrays:
    """Named arrays in anonymous memory. Processes that map the same file with the same specs share the values."""

    def __init__(self, specs: Mapping[str, ArraySpec], file: int | None = None):
        """Maps the file descriptor `file`; None: a new file of zeros."""
        offsets, size = {}, 0
        for name, spec in specs.items():
            offsets[name] = size
            size += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
        self.size = max(size, mmap.PAGESIZE)
        self.file = os.memfd_create("motif_jax") if file is None else file
        if file is None:
            os.ftruncate(self.file, self.size)
        mapping = mmap.mmap(self.file, self.size)  # kept alive by the arrays that refer to it
        self.arrays = {name: np.ndarray(spec.shape, spec.dtype, mapping, offsets[name]) for name, spec in specs.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def claim(self, name: str, record: memoryview | None = None, place: int = 0) -> int:
        """Takes the next number of the counter `name` (one int64), which living processes never share.

        `record[place]` becomes the number plus 1 before the counter is increased. If the process is killed in between,
        the number will be taken once more, but never skipped. The kernel releases the lock of a killed process.
        """
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            number = int(self.arrays[name][0])
            if record is not None:
                record[place] = number + 1
            self.arrays[name][0] = number + 1
            return number
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; the memory itself is freed with the last array that refers to it."""
        self.arrays = {}
        os.close(self.file)


MANY = 8  # groups, from which on one NumPy call per array takes half the time of a loop


def read_rows(array: np.ndarray, places: np.ndarray, room: int = 0) -> np.ndarray:
    """Concatenates R rows of a rollouts' array, [S, rows, E, ...]. [max(R * E, room), ...], padded with zeros

    A row is one step of one group; `places` are their slots and steps, [R, 2]. A single row is not copied: it changes
    when its group writes the next rollout into this slot.
    """
    size, count = array.shape[2], len(places)
    if count == 1 and room <= size:
        return array[*places[0]]
    rows = np.empty((max(room, count * size), *array.shape[3:]), array.dtype)
    if count < MANY:
        for number, (slot, step) in enumerate(places.tolist()):
            rows[number * size : (number + 1) * size] = array[slot, step]
    else:
        flat = array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
        out = rows[: count * size].reshape(count, *array.shape[2:])
        # With the mode "raise", NumPy would buffer the result, to leave `out` unchanged after an error.
        np.take(flat, places[:, 0] * array.shape[1] + places[:, 1], 0, out=out, mode="clip")
    rows[count * size :] = 0
    return rows


def write_rows(array: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Writes `values`, [R * E, ...], to rows."""
    array[places[:, 0], places[:, 1]] = np.asarray(values).reshape(len(places), *array.shape[2:])


# ---- the worker

PR_SET_PDEATHSIG = 1
LEASE_TICK_S = 0.001  # between looks for the number of the next episode, which the learner's host sends


class Group:
    """Games that step together, and their current slot."""

    def __init__(self, layout: Layout, shared: SharedArrays, worker: int, group: int, world: World):
        self._shared, self._layout = shared, layout
        self._own = owner(layout.env)  # None for the program's own worlds
        lists = (memoryview(shared[name][worker, group]) for name in ("playing", "undelivered", "redo"))
        self._playing, self._undelivered, self._redo = lists
        numbers = (memoryview(shared[name][worker, group : group + 1]) for name in ("stepping", "played"))
        self._stepping, self._played = numbers
        self._ended, self._warming = 0, False  # episodes that ended in the current slot
        self._actions = shared["actions"][worker, group]
        self.scripted = ScriptedPlayers(layout.player, world, layout.group_size) if layout.player else None
        shown = getattr(world, "screen_frames", ()) if layout.record else ()  # which the recorder needs
        self.vector = world.vector(
            layout.group_size, tuple(key for key, _ in layout.observations), seed=layout.seed, stream=layout.stream,
            next_episode=self._next_episode, stepping=self._stepping,
            extra_frames=(*(self.scripted.frames if self.scripted else ()), *shown),
        )  # fmt: skip
        if layout.waits and not getattr(self.vector, "can_wait", False):
            what = f"the games of the world {world.name!r} cannot wait, as what acts in them, or their algorithm, asks"
            how = "its vector must skip the action WAIT and set `can_wait`"
            raise UserError(f"{what}: {how} (--config.env.world, --config.policy.algorithm)")
        if layout.record and hasattr(self.vector, "replace_games"):
            with_screen = getattr(world, "with_screen", lambda game: game)
            self.vector.replace_games(lambda game: RecordedGame(with_screen(game), Path(layout.record)))
        self._rows_of = functools.cache(self._find_rows)  # looking up a row costs more than writing to it
        self.granted: collections.deque[int] = collections.deque()
        self.slot: int | None = None
        self.vector.reset()
        if ":" in layout.env.get("world", ""):
            check_observations(world, self.vector, layout.observations, layout.group_size)
        self._stepping[0] = 0

    def _find_rows(self, slot: int) -> list[Rows]:
        """The rows of a slot: row t has observation t and step t; the last row has only an observation."""
        rows: list[dict[str, np.ndarray]] = [{} for _ in range(self._layout.rollout_length + 1)]
        for key in self._layout.row_specs():
            for row, array in zip(rows, self._shared[key][slot], strict=False):
                row[key] = array
        return [self.vector.open_rows(row) for row in rows]

    def warm_up(self, game: int, limit: int, beat: memoryview) -> None:
        """Plays up to `limit` random actions, so that games do not start in step; each is a heartbeat."""
        chance = random.Random(self._playing[game])

        def chances() -> Iterator[float]:
            for _ in range(chance.randint(0, limit)):
                beat[0] += 1
                yield chance.random()

        self._warming = True
        self.vector.play_on(game, chances())
        self._warming = False
        self._stepping[0] = 0

    def _next_episode(self, game: int) -> int:
        """The number of the game's next episode. The shared lists always hold the episodes lost with this process."""
        if self._playing[game] and not self._warming:  # warm-up episodes are not delivered
            self._undelivered[self._ended] = self._playing[game]
            self._ended += 1
        while self._layout.leased and not any(self._redo):
            time.sleep(LEASE_TICK_S)
        waiting = (index for index, number in enumerate(self._redo) if number)
        lost = min(waiting, key=self._redo.__getitem__, default=None)  # the oldest first, so that none waits for ever
        if lost is None:
            episode = self._shared.claim("next_episode", self._playing, game)
        else:
            episode = self._redo[lost] - 1
            self._playing[game] = self._redo[lost]
            self._redo[lost] = 0
        number = episode // self._layout.episodes_per_seed
        if self.scripted:
            self.scripted.begin(game, self.vector.seed_of(number))
        return number

    def delivered(self) -> None:
        """Marks the slot, and the episodes that ended in it, as delivered to the parent."""
        for index in range(self._ended):
            self._undelivered[index] = 0
        self.slot, self._ended = None, 0

    def open(self) -> None:
        self.slot = self.granted.popleft()
        self.step_in_slot = 0
        self._rows = self._rows_of(self.slot)
        for key in ("terminated", "truncated", "first"):  # from here on only true values are written
            self._shared[key][self.slot] = False
        self._shared["num_episodes"][self.slot] = 0
        self.vector.observe(self._rows[0])
        self._rows[0]["first"][:] = self.vector.first

    def step(self) -> bool:  # whether the slot is full
        vector, step = self.vector, self.step_in_slot
        actions = self.scripted.act(vector) if self.scripted else self._actions.tolist()
        rows, after = self._rows[step], self._rows[step + 1]
        for game, action in enumerate(actions):
            rows["action"][game] = action
        vector.step(actions, rows)
        if self._own:
            check_rewards(rows["reward"], self._own)
        self._stepping[0] = 0
        if vector.finished:
            count = self._shared["num_episodes"]
            for game, info in vector.finished:
                number = count[self.slot]
                self._shared["ended_at"][self.slot, number] = step, game
                self._shared["episodes"][self.slot, number] = info.as_row()
                count[self.slot] += 1
            after["first"][:] = vector.first
        vector.observe(after)
        self.step_in_slot = step + 1
        full = self.step_in_slot == self._layout.rollout_length
        self._played[0] = 0 if full else self.step_in_slot
        return full


class Worker:
    """All groups of one worker: `handle` takes messages, `reply` sends them."""

    def __init__(self, layout: Layout, shared: SharedArrays, index: int, reply: Callable[[Op, int, int], None]):
        self._reply = reply
        self._beat = memoryview(shared["beat"][index : index + 1])
        world = make_world(layout.env)
        self.groups = []
        for group in range(layout.groups):
            self.groups.append(Group(layout, shared, index, group, world))
            self._beat[0] += 1
            for game in range(layout.group_size if layout.warmup_steps else 0):
                self.groups[-1].warm_up(game, layout.warmup_steps, self._beat)

    def handle(self, op: int, number: int, slot: int) -> None:
        group = self.groups[number]
        if op == Op.SLOT:
            group.granted.append(slot)
            if group.slot is not None:
                return
            group.open()
        else:
            self._step(group, number)
        while group.scripted and group.slot is not None:  # fills all granted slots
            self._step(group, number)
        if group.slot is not None:
            self._reply(Op.READY, number, group.slot)

    def _step(self, group: Group, number: int) -> None:
        self._beat[0] += 1
        if group.step():
            self._reply(Op.FULL, number, group.slot or 0)
            group.delivered()
            if group.granted:
                group.open()

    def close(self) -> None:
        for group in self.groups:
            group.vector.close()


def main() -> None:
    """Entry point of the process that `pool.ProcessWorker` starts."""
    fields, index, parent, shared_file, messages_in, messages_out = json.load(sys.stdin)
    for number in (signal.SIGINT, signal.SIGTERM):  # for the parent, which then ends its workers
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        return

    def reply(op: Op, group: int, slot: int) -> None:
        os.write(messages_out, MESSAGE_FORMAT.pack(op, group, slot))

    try:
        layout = layout_from_json(fields)
        shared = SharedArrays(layout.specs(), shared_file)
        gc.set_threshold(100_000)  # steps do not create reference cycles; the search takes 1 % of the time
        worker = Worker(layout, shared, index, reply)
        handled, waited_s = memoryview(shared["handled"][index : index + 1]), shared["waited_s"]
        while True:
            begin = time.perf_counter()
            data = os.read(messages_in, 512 * MESSAGE_FORMAT.size)  # whole messages, because they are written whole
            waited_s[index] += time.perf_counter() - begin
            if not data:  # the parent closed the pool, or has ended
                worker.close()
                return
            for message in MESSAGE_FORMAT.iter_unpack(data):
                worker.handle(*message)
                handled[0] += 1
    except BrokenPipeError:
        return  # the parent has ended
    except BaseException as error:  # including SystemExit: a game may call sys.exit()
        # Short enough for the pipe, even if every character is written as an escape.
        sentence, details = "", traceback.format_exc()[-10_000:]
        if isinstance(error, UserError):
            sentence, details = str(error), ""
        elif failure := as_failure(fields["env"], error):
            sentence, details = failure.sentence, failure.details
        text = json.dumps((find_refusal(error), sentence, details)).encode()
        os.write(messages_out, MESSAGE_FORMAT.pack(Op.ERROR, 0, len(text)) + text)
        sys.exit(1)


def layout_from_json(fields: dict) -> Layout:
    """Rebuilds a layout from the JSON of `Layout._asdict`."""
    for name in ("observations", "outputs", "starts"):
        fields[name] = tuple((key, ArraySpec(tuple(shape), *rest)) for key, (shape, *rest) in fields[name])
    shape, *rest = fields["action"]
    return Layout(**fields | {"action": ArraySpec(tuple(shape), *rest)})


if __name__ == "__main__":
    main()
