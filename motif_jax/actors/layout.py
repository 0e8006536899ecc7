"""The protocol between parent and workers: the sizes of a pool, its shared arrays, and the messages in the pipes.

A slot is one rollout of one group of E games: T steps and the T + 1 observations around them.
"""

from __future__ import annotations

import enum
import fcntl
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.world import SeedStream, step_specs
from motif_jax.structs import COMMON, ArraySpec, EpisodeInfo, UserError

MESSAGE_FORMAT = struct.Struct("<BxHi")  # operation, group, slot (or length of the text that follows an ERROR)

BATCHED = GAME, ENDED = "game", "ended"  # arrays that a batch adds to those of its rollouts


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
    alike: int = 1  # consecutive episodes that have the same seed, and whose number for the game is the same
    leased: bool = False  # the parent gives each group the numbers of its episodes, in `redo`
    record: str = ""  # directory for recordings of every episode (`recorder.RecordedGame`), or ""

    @property
    def num_slots(self) -> int:  # S
        return self.num_workers * self.groups * self.slots_per_group

    @property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.specs().values())

    def check_names(self) -> None:
        """Raises UserError if an observation has the name of another array of a pool or a batch."""
        taken = {*self._replace(observations=()).specs(), *BATCHED}
        if names := [name for name, _ in self.observations if name in taken]:
            raise UserError(
                f"the world {self.env.get('world')!r} gives an observation called {names[0]!r}, a name that is taken: "
                f"rename it, in gymnasium with a wrapper ({WORLD_FLAG})"
            )

    def control_specs(self) -> dict[str, ArraySpec]:
        games = (self.num_workers, self.groups, self.group_size)
        episodes = (*games[:2], (self.rollout_length + 1) * self.group_size)
        return {
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
        specs = self.control_specs()
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
Places = list[tuple[int, int]] | tuple[np.ndarray, np.ndarray]  # slot and step of each row: pairs, or two arrays


def find_places(pairs: Sequence[tuple[int, int]]) -> Places:
    """Converts (slot, step) pairs to the form in which `RolloutRows` is fastest."""
    if len(pairs) < MANY:
        return list(pairs)
    slots, steps = np.array(pairs).T
    return slots, steps


class RolloutRows:
    """The rollouts of a pool, row by row; a row is one step of one group."""

    def __init__(self, rollouts: Mapping[str, np.ndarray]):
        """Takes arrays of [S, rows, E, ...]; `write` changes them."""
        self._arrays = dict(rollouts)
        self._flat = {  # [S * rows, E, ...]
            key: array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) for key, array in rollouts.items()
        }

    def read(self, key: str, places: Places, room: int = 0) -> np.ndarray:
        """Concatenates rows of one array. [max(R * E, room), ...], padded with zeros

        A single row is not copied: it changes when its group writes the next rollout into this slot.
        """
        array = self._arrays[key]
        size, count = array.shape[2], self._count(key, places)
        if isinstance(places, list) and len(places) == 1 and room <= size:
            return array[places[0]]
        rows = np.empty((max(room, count), *array.shape[3:]), array.dtype)
        if isinstance(places, list):
            for number, place in enumerate(places):
                rows[number * size : (number + 1) * size] = array[place]
        else:
            slots, steps = places
            out = rows[:count].reshape(len(slots), *array.shape[2:])
            # With the mode "raise", NumPy would buffer the result, to leave `out` unchanged after an error.
            np.take(self._flat[key], slots * array.shape[1] + steps, 0, out=out, mode="clip")
        rows[count:] = 0
        return rows

    def _count(self, key: str, places: Places) -> int:
        """The number of rows of games, R * E."""
        return (len(places) if isinstance(places, list) else len(places[0])) * self._arrays[key].shape[2]

    def write(self, key: str, places: Places, values: np.ndarray) -> None:
        """Writes `values`, [R * E, ...], to rows of one array."""
        array = self._arrays[key]
        size = array.shape[2]
        if isinstance(places, list):
            for number, place in enumerate(places):
                array[place] = values[number * size : (number + 1) * size]
        else:
            slots, steps = places
            self._flat[key][slots * array.shape[1] + steps] = values.reshape(len(slots), *array.shape[2:])

    def write_bytes(self, key: str, places: Places, start: np.ndarray) -> int:
        """Writes rows of one array from the start of some bytes; returns how many these were."""
        array = self._arrays[key]
        count = self._count(key, places)
        size = count * array.itemsize * math.prod(array.shape[3:])
        self.write(key, places, start[:size].view(array.dtype).reshape(count, *array.shape[3:]))
        return size
