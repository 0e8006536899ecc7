"""A worker: plays groups of games at the parent's command. Its process never loads JAX.

`Worker` holds the games and handles messages, in its own process (`main`) or, for debugging, in the parent
(`transport.InlineWorker`).
"""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from motif_jax.actors.layout import MESSAGE_FORMAT, Layout, Op, SharedArrays
from motif_jax.actors.players import ScriptedPlayers
from motif_jax.actors.recorder import RecordedGame
from motif_jax.envs.own_code import as_failure, check_observations, check_rewards, owner
from motif_jax.envs.world import World
from motif_jax.envs.worlds import make_world
from motif_jax.structs import ArraySpec, UserError
from motif_jax.system.errors import find_refusal

PR_SET_PDEATHSIG = 1
LEASE_TICK_S = 0.001  # between looks for the number of the next episode, which the learner's host sends


class Group:
    """Games that step together, and their current slot."""

    def __init__(
        self, layout: Layout, shared: SharedArrays, worker: int, group: int, world: World,
        rows_of: Callable[[int], list[dict[str, np.ndarray]]],
    ):  # fmt: skip
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
        waits = layout.alike > 1 or any(name == "charge" for name, _ in layout.outputs)
        if waits and not getattr(self.vector, "can_wait", False):
            raise UserError(
                f"the games of the world {world.name!r} cannot wait while others play or a controller decides: its "
                "vector must skip the action WAIT and set `can_wait` (--config.policy.options, .algorithm)"
            )
        if layout.record and hasattr(self.vector, "replace_games"):
            with_screen = getattr(world, "with_screen", lambda game: game)
            self.vector.replace_games(lambda game: RecordedGame(with_screen(game), Path(layout.record)))
        # Looking up a row costs more than writing to it, so the rows are cached.
        self._rows_of = functools.cache(lambda slot: [self.vector.open_rows(row) for row in rows_of(slot)])
        self.granted: collections.deque[int] = collections.deque()
        self.slot: int | None = None
        self.vector.reset()
        if ":" in layout.env.get("world", ""):
            check_observations(world, self.vector, layout.observations, layout.group_size)
        self._stepping[0] = 0

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
        number = episode // self._layout.alike
        if self.scripted:
            self.scripted.begin(game, self.vector.seed_of(number))
        return number

    def delivered(self) -> None:
        """Marks the slot, and the episodes that ended in it, as delivered to the parent."""
        for index in range(self._ended):
            self._undelivered[index] = 0
        self.slot, self._ended = None, 0

    def open(self) -> None:
        """Starts writing the next granted slot, with the current observation."""
        self.slot = self.granted.popleft()
        self.step_in_slot = 0
        self._rows = self._rows_of(self.slot)
        for key in ("terminated", "truncated", "first"):  # from here on only true values are written
            self._shared[key][self.slot] = False
        self._shared["num_episodes"][self.slot] = 0
        self.vector.observe(self._rows[0])
        self._rows[0]["first"][:] = self.vector.first

    def step(self) -> bool:
        """Plays one step and writes it to the slot. Returns whether the slot is full."""
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
        self._layout, self._shared = layout, shared
        world = make_world(layout.env)
        self.groups = []
        for group in range(layout.groups):
            self.groups.append(Group(layout, shared, index, group, world, self._rows_of))
            self._beat[0] += 1
            for game in range(layout.group_size if layout.warmup_steps else 0):
                self.groups[-1].warm_up(game, layout.warmup_steps, self._beat)

    def _rows_of(self, slot: int) -> list[dict[str, np.ndarray]]:
        """The rows of a slot: row t has observation t and step t; the last row has only an observation."""
        rows: list[dict[str, np.ndarray]] = [{} for _ in range(self._layout.rollout_length + 1)]
        for key in self._layout.row_specs():
            for row, array in zip(rows, self._shared[key][slot], strict=False):
                row[key] = array
        return rows

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
    """Entry point of the process that `transport.ProcessWorker` starts."""
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
        _serve(Worker(layout, shared, index, reply), shared, index, messages_in)
    except BrokenPipeError:
        return  # the parent has ended
    except BaseException as error:  # including SystemExit: a game may call sys.exit()
        # Short enough for the pipe, even if every character is written as an escape.
        sentence, details = "", traceback.format_exc()[-10_000:]
        if isinstance(error, UserError):
            sentence, details = str(error), ""
        elif failure := as_failure(fields["env"], error):
            sentence, details = failure.sentence, failure.traceback
        text = json.dumps((find_refusal(error), sentence, details)).encode()
        os.write(messages_out, MESSAGE_FORMAT.pack(Op.ERROR, 0, len(text)) + text)
        sys.exit(1)


def _serve(worker: Worker, shared: SharedArrays, index: int, messages_in: int) -> None:
    handled = memoryview(shared["handled"][index : index + 1])
    waited_s = shared["waited_s"]
    while True:
        begin = time.perf_counter()
        data = os.read(messages_in, 512 * MESSAGE_FORMAT.size)  # whole messages, because they are written whole
        waited_s[index] += time.perf_counter() - begin
        if not data:  # the parent closed the pool, or has ended
            worker.close()
            return
        for op, group, slot in MESSAGE_FORMAT.iter_unpack(data):
            worker.handle(op, group, slot)
            handled[0] += 1


def layout_from_json(fields: dict) -> Layout:
    """Rebuilds a layout from the JSON of `Layout._asdict`."""
    for name in ("observations", "outputs", "starts"):
        fields[name] = tuple((key, ArraySpec(tuple(shape), *rest)) for key, (shape, *rest) in fields[name])
    shape, *rest = fields["action"]
    return Layout(**fields | {"action": ArraySpec(tuple(shape), *rest)})


if __name__ == "__main__":
    main()
