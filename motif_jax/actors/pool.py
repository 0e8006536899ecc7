"""The pool: many games in worker processes, of which some may crash or hang without anyone else noticing.

One thread drives it with `poll`; others may `release` slots. A worker that dies or hangs is replaced at once: its games
start their episodes again from the same seeds, its unfinished slots are dropped and counted. An episode during which
workers die again and again is given up. A Python error in a worker is our fault, not the game's, and is raised here.
"""

from __future__ import annotations

import collections
import os
import select
import signal
import time

import numpy as np

from motif_jax.actors.capacity import check_capacity
from motif_jax.actors.layout import Ended, Full, Layout, Op, Request
from motif_jax.actors.links import InlineWorker, ProcessWorker
from motif_jax.actors.players import parse_players
from motif_jax.actors.slabs import Slab
from motif_jax.envs.observations import observation_specs
from motif_jax.envs.seeding import Stream
from motif_jax.envs.vector import GameSettings
from motif_jax.metrics import Timers
from motif_jax.structs import ArraySpec, EpisodeInfo

SLOTS_PER_GROUP = 2  # one being written, one waiting, so that no group ever waits for the parent's bookkeeping
START_TIMEOUT_S = 120.0  # for imports and the first games, on a machine that is busy starting many
GIVE_UP_AFTER = 3  # deaths of workers inside the same episode
FAILURES_IN_A_ROW = 8  # deaths of one worker without a single finished slot


class ActorPool:
    """Games in workers; use as a context manager so that nothing is left behind."""

    def __init__(
        self,
        settings: GameSettings,
        observations: tuple[str, ...],
        *,
        num_workers: int,
        games_per_worker: int,
        rollout_length: int,
        player: str = "",
        groups: int = 2,
        outputs: dict[str, ArraySpec] | None = None,
        spare_slots: int = 0,
        seed: int = 0,
        stream: int = Stream.TRAIN,
        first_episode: int = 0,
        hang_timeout_s: float = 10.0,
        section: str = "collect",
    ):
        """Lays out the memory and starts the workers.

        Args:
          settings, observations: what games, and what is recorded of them (`observations.OBSERVATIONS`, `EVENTS`).
          num_workers: processes; 0 plays everything in this one.
          games_per_worker: games in each.
          rollout_length: steps per slot (T).
          player: scripted player in the workers (`players`); if empty, `poll` returns requests to be answered.
          groups: groups per worker, when requests are to be answered.
          outputs: what is stored beside each action by `act`.
          spare_slots: slots beyond those that the groups themselves need, for those who hold on to full ones.
          seed, stream, first_episode: which games are played.
          hang_timeout_s: a worker that shows no life for so long is replaced.
          section: config section to name in errors.
        """
        settings.check()
        if player:
            parse_players(player)
            groups = games_per_worker  # nobody waits for actions: step each game for a whole slot, in a warm cache
        check_capacity(num_workers, games_per_worker, groups, section=section)
        observation_specs(observations)
        group_count = max(num_workers, 1) * groups
        self.layout = Layout(
            settings=settings,
            observations=observations,
            num_workers=max(num_workers, 1),
            groups=groups,
            group_size=games_per_worker // groups,
            rollout_length=rollout_length,
            num_slots=group_count * SLOTS_PER_GROUP + spare_slots,
            player=player,
            seed=seed,
            stream=stream,
            outputs=tuple((outputs or {}).items()),
        )
        self.timers = Timers()
        self.restarts = 0  # workers replaced
        self.dropped_steps = 0  # steps lost with them
        self.given_up: list[int] = []  # episodes
        self._inline = num_workers == 0
        self._hang_timeout_s = hang_timeout_s
        self._slab = Slab(self.layout.specs())
        self._slab["next_episode"][0] = first_episode
        self.rollouts = {key: self._slab[key] for key in self.layout.row_specs()}  # [S, T or T + 1, E, ...]
        self._free = collections.deque(range(self.layout.num_slots))
        self._released: collections.deque[int] = collections.deque()
        self._needy: collections.deque[tuple[int, int]] = collections.deque()
        self._held: dict[tuple[int, int], collections.deque[int]] = {}
        self._step: dict[tuple[int, int], int] = {}
        self._blame: collections.Counter[int] = collections.Counter()
        self._failures = [0] * self.layout.num_workers
        self._sent = [0] * self.layout.num_workers  # notes to each worker
        self._beats = [(0, time.monotonic())] * self.layout.num_workers
        self._next_check = time.monotonic() + 0.5
        self._poll = select.poll()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._poll.register(self._wake_read, select.POLLIN)
        self._by_file: dict[int, int] = {}
        self._workers: list[ProcessWorker | InlineWorker] = []
        try:
            for index in range(self.layout.num_workers):
                self._workers.append(self._start(index))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ActorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_games(self) -> int:
        """Games in all workers."""
        return self.layout.num_workers * self.layout.groups * self.layout.group_size

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if isinstance(worker, ProcessWorker)]

    def poll(self, timeout_s: float = 1.0) -> tuple[list[Request], list[Full]]:
        """Waits for news: groups that want actions, and slots that are full (the caller's, until released)."""
        self._grant()
        requests: list[Request] = []
        full: list[Full] = []
        if self._inline:
            self._sort(0, self._workers[0].receive() or [], requests, full)
            return requests, full
        with self.timers("wait_for_workers"):
            ready = self._poll.poll(timeout_s * 1000)
        for file, _ in ready:
            if file == self._wake_read:
                os.read(self._wake_read, 4096)
                continue
            index = self._by_file[file]
            notes = self._workers[index].receive()
            if notes is None:
                self._replace(index, hung=False)
            else:
                self._sort(index, notes, requests, full)
        self._grant()
        now = time.monotonic()
        if now > self._next_check:
            self._next_check = now + 0.5
            self._replace_hung(now)
        return requests, full

    def act(self, requests: list[Request], actions: np.ndarray, outputs: dict[str, np.ndarray] | None = None) -> None:
        """Answers requests: `actions` is [sum of E], in the order of the requests, and so is every output."""
        size = self.layout.group_size
        for number, request in enumerate(requests):
            rows = slice(number * size, (number + 1) * size)
            if self._held[request[:2]][0] != request.slot:
                continue  # its worker was replaced in the meantime
            self._slab["actions"][request.worker, request.group] = actions[rows]
            for key, values in (outputs or {}).items():
                self.rollouts[key][request.slot, request.step] = values[rows]
            self._send(request.worker, Op.ACT, request.group)

    def release(self, full: Full) -> None:
        """Gives a slot back. Any thread may."""
        self._released.append(full.slot)
        os.write(self._wake_write, b"\0")

    def ended(self, full: Full) -> list[Ended]:
        """The episodes that ended in a rollout, in order."""
        slot, found = full.slot, []
        for number in range(int(self._slab["num_episodes"][slot])):
            step, game = self._slab["ended_at"][slot, number]
            found.append(Ended(int(step), int(game), EpisodeInfo.from_row(self._slab["episodes"][slot, number])))
        return found

    def close(self) -> None:
        """Ends all workers and gives everything back."""
        deadline = time.monotonic() + 2.0
        for worker in self._workers:
            worker.close(deadline)
        self._workers = []
        if self._wake_write >= 0:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1
            self.rollouts = {}
            self._slab.close()

    def _start(self, index: int) -> ProcessWorker | InlineWorker:
        worker = (InlineWorker if self._inline else ProcessWorker)(self.layout, self._slab, index)
        self._beats[index] = (-1, time.monotonic())
        if isinstance(worker, ProcessWorker):
            self._by_file[worker.notes] = index
            self._poll.register(worker.notes, select.POLLIN)
        for group in range(self.layout.groups):
            self._held[index, group] = collections.deque()
            self._step[index, group] = 0
            self._needy.extend([(index, group)] * SLOTS_PER_GROUP)
        return worker

    def _send(self, index: int, op: Op, group: int, slot: int = 0) -> None:
        self._workers[index].send(op, group, slot)
        self._sent[index] += 1

    def _grant(self) -> None:
        while self._released:
            self._free.append(self._released.popleft())
        while self._free and self._needy:
            index, group = self._needy.popleft()
            slot = self._free.popleft()
            self._held[index, group].append(slot)
            self._send(index, Op.SLOT, group, slot)

    def _sort(self, index: int, notes: list[tuple[int, int, int]], requests: list[Request], full: list[Full]) -> None:
        for op, group, slot in notes:
            if op == Op.READY:
                requests.append(Request(index, group, slot, self._step[index, group]))
                self._step[index, group] += 1
            else:
                self._held[index, group].popleft()
                self._step[index, group] = 0
                self._needy.append((index, group))
                self._failures[index] = 0
                full.append(Full(index, group, slot))

    def _replace_hung(self, now: float) -> None:
        for index in range(len(self._workers)):
            beat = int(self._slab["beat"][index])
            last, since = self._beats[index]
            idle = self._slab["handled"][index] == self._sent[index]  # it has nothing to do, and need not show life
            if beat != last or (beat and idle):
                self._beats[index] = (beat, now)
            elif now - since > (self._hang_timeout_s if beat else START_TIMEOUT_S):
                self._replace(index, hung=True)

    def _play_again(self, index: int, group: int, blame: bool) -> None:
        """Leaves word for a group's next worker, which episodes were lost with the last one.

        `blame`: whether the worker died of the episode that it was playing, rather than by someone else's hand.
        """
        playing, redo = self._slab["playing"][index, group], self._slab["redo"][index, group]
        undelivered = self._slab["undelivered"][index, group]
        owed = set(playing.tolist()) | set(undelivered.tolist()) | set(redo.tolist())
        stepping = int(self._slab["stepping"][index, group])
        if stepping and blame:
            number = int(playing[stepping - 1])
            self._blame[number] += 1
            if self._blame[number] >= GIVE_UP_AFTER:
                owed.discard(number)
                self.given_up.append(number - 1)
        owed.discard(0)
        playing[:] = undelivered[:] = redo[:] = 0
        redo[: len(owed)] = sorted(owed)

    def _replace(self, index: int, hung: bool) -> None:
        worker = self._workers[index]
        assert isinstance(worker, ProcessWorker)
        self._poll.unregister(worker.notes)
        del self._by_file[worker.notes]
        status = worker.kill()
        self._failures[index] += 1
        if self._failures[index] >= FAILURES_IN_A_ROW:
            raise RuntimeError(
                f"actor worker {index} ended {FAILURES_IN_A_ROW} times without finishing a rollout, "
                f"last with status {status}; is there memory for {self.num_games} games?"
            )
        self.restarts += 1
        for group in range(self.layout.groups):
            self.dropped_steps += max(self._step[index, group] - 1, 0) * self.layout.group_size
            self._free.extend(self._held[index, group])
            self._play_again(index, group, blame=hung or status != -signal.SIGKILL)
        self._slab["stepping"][index] = 0
        self._slab["beat"][index] = 0
        self._slab["handled"][index] = 0
        self._sent[index] = 0
        self._needy = collections.deque(need for need in self._needy if need[0] != index)
        self._workers[index] = self._start(index)
