"""The pool: many games in worker processes, any of which may crash or hang without disturbing the others.

One thread drives it with `poll`; others may `release` slots. A worker that dies or hangs is replaced at once: its games
restart their episodes from the same seeds, its unfinished slots are dropped and counted. An episode in which workers
die repeatedly is given up. A Python error in a worker is raised here.

Start a pool from a thread that outlives it: on Linux, workers are killed when the thread that started them ends.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np

from motif_jax.actors.players import parse_scripted
from motif_jax.actors.worker import (
    MESSAGE_FORMAT,
    Ended,
    FilledSlot,
    Layout,
    Op,
    Request,
    SharedArrays,
    Worker,
    write_rows,
)
from motif_jax.console import print_line
from motif_jax.envs.own_code import reported
from motif_jax.envs.world import SeedStream, select_specs
from motif_jax.envs.worlds import check_world
from motif_jax.files import NoLocks, try_lock
from motif_jax.structs import ArraySpec, EpisodeInfo, UserCodeError, UserError
from motif_jax.system.metrics import Timers

Message = tuple[int, int, int]  # Op, group, slot
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerError(RuntimeError):
    """A Python exception inside a worker, with the worker's own traceback."""


MARKER = ".motif_jax-worker-folder"
PURPOSE = b"This temporary folder of an actor worker of motif_jax is removed when its parent process has ended.\n"


class WorkerFolder:
    """A folder for the temporary files of one worker, which the next pool removes if the parent was killed.

    All users share the temporary directory, so a folder is removed only if it is this user's and has a marker file that
    this program wrote. The parent holds a lock on the marker while it runs, which is visible across containers.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"motif_jax-{os.getpid()}-worker-"))
        self._marker = open(self.path / MARKER, "xb")  # noqa: SIM115  (held while this object lives)
        with contextlib.suppress(NoLocks):  # others cannot lock it either, and so do not remove the folder
            try_lock(self._marker)
        self._marker.write(PURPOSE)  # after the lock: only then do others take it for a worker's folder
        self._marker.flush()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._marker.close()


def remove_stale_folders() -> None:
    """Removes the folders of workers whose parent was killed before it could clean up."""
    for folder in Path(tempfile.gettempdir()).glob("motif_jax-*-worker-*"):
        with contextlib.suppress(OSError, NoLocks):  # OSError: without a marker, or removed by another process
            if not folder.is_symlink() and folder.stat().st_uid == os.geteuid():
                with open(folder / MARKER, "r+b") as marker:
                    if marker.read() == PURPOSE and try_lock(marker):
                        shutil.rmtree(folder, ignore_errors=True)


def check_groups(games_per_worker: int, groups: int, flag: str) -> None:
    """Raises UserError if a worker's games cannot be divided into groups of the same size."""
    if games_per_worker % groups:
        flags = f"{flag}.games_per_worker" + (", .groups" if flag == "--config.policy" else "")
        raise UserError(f"games_per_worker must be a multiple of {groups} groups, not {games_per_worker} ({flags})")


START_TIMEOUT_S = 600.0  # for imports and the first games, on a machine that is busy starting many
LOOK_S = 1.0  # maximum silence counted between two checks of a worker
GIVE_UP_AFTER = 3  # deaths of workers in the same episode
FAILURES_IN_A_ROW = 8  # deaths of a handle's workers without a finished slot
INLINE_TICK_S = 0.0005


class WorkerHandle:
    """The worker with number `index`, and its successors when it dies, as a pool sees them."""

    index: int
    generation: int  # number of earlier workers

    def act(self, groups: list[int]) -> None: ...  # takes the steps whose actions are there
    def give_back(self, full: FilledSlot) -> None: ...  # takes back a slot from the caller of `poll`
    def is_responsible_for(self, group: int, episode: int) -> bool: ...  # type: ignore[empty-body]
    def close(self, deadline: float) -> None: ...  # lets it end by itself until then


class LocalWorker(WorkerHandle):
    """A worker of this host."""

    def __init__(self, pool: ActorPool, index: int, hang_timeout_s: float, away: Iterable[int]):
        """Starts the first worker; `away`: slots that it gets later, by `give_back`."""
        self.index, self.generation, self._failures = index, 0, 0
        self._pool, self._layout, self._shared = pool, pool.layout, pool._shared
        self.hang_timeout_s = hang_timeout_s
        self._away = set(away)  # slots held by the caller of `poll`
        self.start()

    def start(self) -> None:
        """Starts a new worker and grants it all slots except those held by the caller of `poll`."""
        groups, per_group = self._layout.groups, self._layout.slots_per_group
        self._launch()
        self._sent = 0  # messages sent to this worker
        self._last_beat, self._looked_at_s, self._silent_s = -1, time.monotonic(), 0.0
        self._held = [collections.deque[int]() for _ in range(groups)]  # its slots by group, the current one first
        self._step = [0] * groups
        for group in range(groups):
            first = (self.index * groups + group) * per_group
            for slot in range(first, first + per_group):
                if slot not in self._away:
                    self._grant(group, slot)

    def _grant(self, group: int, slot: int) -> None:
        self._held[group].append(slot)
        self._send([(Op.SLOT, group, slot)])

    def _send(self, messages: list[Message]) -> None:
        self._transmit(messages)
        self._sent += len(messages)

    def _launch(self) -> None: ...  # starts the worker itself
    def _transmit(self, messages: list[Message]) -> None: ...

    def act(self, groups: list[int]) -> None:
        self._send([(Op.ACT, group, 0) for group in groups])

    def give_back(self, full: FilledSlot) -> None:
        self._away.discard(full.slot)
        self._grant(full.group, full.slot)

    def groups_with_slots(self) -> list[int]:
        return [group for group, slots in enumerate(self._held) if slots]

    def read(self, messages: list[Message]) -> tuple[list[Request], list[FilledSlot]]:
        """Translates the worker's messages into requests for actions and full slots."""
        requests, fulls = [], []
        for op, group, slot in messages:
            if op == Op.READY:
                requests.append(Request(self.index, group, slot, self._step[group], self.generation))
                self._step[group] += 1
            else:
                self._held[group].popleft()
                self._away.add(slot)
                self._step[group] = 0
                self._failures = 0
                fulls.append(FilledSlot(self.index, group, slot))
        return requests, fulls

    def hangs(self, now: float) -> bool:
        beat = int(self._shared["beat"][self.index])
        # If this process was stopped, or waited for a busy machine, so may the worker have been.
        self._silent_s += min(now - self._looked_at_s, LOOK_S)
        self._looked_at_s = now
        if beat != self._last_beat or (beat and self._shared["handled"][self.index] == self._sent):  # it is idle
            self._last_beat, self._silent_s = beat, 0.0
        return self._silent_s > (self.hang_timeout_s if beat else START_TIMEOUT_S)

    def is_responsible_for(self, group: int, episode: int) -> bool:
        lists = (self._shared[name][self.index, group] for name in ("playing", "undelivered", "redo"))
        return any((numbers == episode + 1).any() for numbers in lists)

    def _who(self) -> str:
        """Names the worker, with the seed and the current episodes, which are needed to replay its games."""
        episodes = [str(number - 1) for number in self._shared["playing"][self.index].ravel().tolist() if number]
        stream = SeedStream(self._layout.stream).name.lower()
        numbers = f"seed {self._layout.seed}, stream {stream}, episodes {', '.join(episodes) or 'none'}"
        return f"actor worker {self.index} ({numbers})"


class ProcessWorker(LocalWorker):
    """A worker in a process, which imports only its own modules."""

    def _launch(self) -> None:
        worker_in, out = os.pipe()
        messages, worker_out = os.pipe()  # the pool polls `messages`
        self._out, self.messages, self._closed = out, messages, False
        # NLE keeps a folder per game in the temporary directory, which a killed worker cannot remove.
        self._folder = WorkerFolder()
        environment = os.environ | ONE_THREAD | {"TMPDIR": str(self._folder.path)}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        # Workers do not need the parent's threads, locks or __main__, so they are neither forked nor "spawned".
        # Their own process group protects them from the parent's Ctrl-C.
        command, pipes = [sys.executable, "-m", "motif_jax.actors.worker"], (worker_in, worker_out, self._shared.file)
        self.process = subprocess.Popen(command, stdin=PIPE, pass_fds=pipes, env=environment, process_group=0)
        os.close(worker_in)
        os.close(worker_out)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, which the pool will notice
            start = self._layout._asdict(), self.index, os.getpid(), self._shared.file, worker_in, worker_out
            self.process.stdin.write(json.dumps(start).encode())
            self.process.stdin.close()
        self._pool.selector.register(self.messages, selectors.EVENT_READ, self)

    def _transmit(self, messages: list[Message]) -> None:
        # In a single system call, which dominates the cost.
        with contextlib.suppress(BrokenPipeError):  # it died, which the pool will notice
            os.write(self._out, b"".join([MESSAGE_FORMAT.pack(*message) for message in messages]))

    def receive(self) -> list[Message] | None:
        """Returns the waiting messages, or None if the worker has ended. Call it when `messages` is readable."""
        data = os.read(self.messages, 512 * MESSAGE_FORMAT.size)
        if not data:
            return None
        messages: list[Message] = []
        while data:
            message = MESSAGE_FORMAT.unpack_from(data)
            data = data[MESSAGE_FORMAT.size :]
            if message[0] == Op.ERROR:
                while len(data) < message[2] and (rest := os.read(self.messages, message[2])):
                    data += rest
                refusal, sentence, details = json.loads(data)
                if sentence and not refusal:
                    raise UserCodeError(f"{sentence}; {self._who()}", details) if details else UserError(sentence)
                # The cause may be an error of the operating system: see `system/errors.py`.
                raise WorkerError(f"{self._who()} failed:\n{details}") from (OSError(*refusal) if refusal else None)
            messages.append(message)
        return messages

    def close(self, deadline: float) -> None:
        if self._closed:
            return
        self._closed = True
        os.close(self._out)  # the worker ends when its input is closed
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.wait()
        os.close(self.messages)
        self._folder.remove()

    def replace(self, hung: bool) -> list[FilledSlot]:  # unread ones
        self._pool.selector.unregister(self.messages)
        self.process.kill()
        status = self.process.wait()  # negative: a signal
        last = itertools.chain.from_iterable(iter(self.receive, None))
        fulls = self.read([message for message in last if message[0] == Op.FULL])[1]
        self.close(time.monotonic())
        self._pool.restarts += 1
        self._pool.dropped_steps += int(self._shared["played"][self.index].sum()) * self._layout.group_size
        self._failures += 1
        if self._failures >= FAILURES_IN_A_ROW:
            memory = f"last with status {status}; if memory ran out, lower num_workers and games_per_worker"
            why = "last silent for too long; if its games are slow, raise hang_timeout_s" if hung else memory
            times = f"ended {FAILURES_IN_A_ROW} times without finishing a rollout"
            raise UserError(f"actor worker {self.index} {times}, {why} ({self._pool.flag})")
        for group in range(self._layout.groups):
            # A SIGKILL from elsewhere (a person, the kernel out of memory) is not the current episode's fault.
            self._play_again(group, own_fault=hung or status != -signal.SIGKILL)
        for name in ("stepping", "played", "beat", "handled"):
            self._shared[name][self.index] = 0
        self.generation += 1
        self.start()
        return fulls

    def _play_again(self, group: int, own_fault: bool) -> None:
        """Lists the lost episodes for the group's next worker, without those that are given up."""
        playing, redo = self._shared["playing"][self.index, group], self._shared["redo"][self.index, group]
        undelivered = self._shared["undelivered"][self.index, group]
        lost = {*playing.tolist(), *undelivered.tolist(), *redo.tolist()} - {0}
        stepping = int(self._shared["stepping"][self.index, group])
        if stepping and own_fault:
            number = int(playing[stepping - 1])
            self._pool.blame[number] += 1
            if self._pool.blame[number] >= GIVE_UP_AFTER:
                lost.discard(number)
                self._pool.given_up.append(number - 1)
        playing[:] = undelivered[:] = redo[:] = 0
        redo[: len(lost)] = sorted(lost)


class InlineWorker(LocalWorker):
    """A worker in this process: for debuggers, determinism and simpler tracebacks."""

    def _launch(self) -> None:
        self._inbox: collections.deque[Message] = collections.deque()
        self._outbox: list[Message] = []
        with reported(self._layout.env):
            self._worker = Worker(
                self._layout, self._shared, self.index, lambda op, group, slot: self._outbox.append((op, group, slot))
            )

    def _transmit(self, messages: list[Message]) -> None:
        self._inbox += messages

    def receive(self) -> list[Message]:
        if self._inbox and not self._outbox:
            try:
                with reported(self._layout.env, f"; {self._who()}"):
                    self._worker.handle(*self._inbox.popleft())
            except Exception as error:
                error.add_note(f"(in {self._who()})")
                raise
        messages, self._outbox = self._outbox, []
        return messages

    def close(self, deadline: float) -> None:
        with reported(self._layout.env):
            self._worker.close()


print_once = functools.cache(print_line)  # a line, once in this process


class ActorPool(contextlib.AbstractContextManager["ActorPool"]):
    """Games in workers; a context manager."""

    def __init__(
        self, env: Mapping[str, Any], observations: tuple[str, ...], *, num_workers: int, games_per_worker: int,
        player: str = "", groups: int = 2, outputs: dict[str, ArraySpec] | None = None,
        starts: dict[str, ArraySpec] | None = None, first_episode: int = 0, hang_timeout_s: float = 10.0,
        flag: str = "--config.collect", elsewhere: int = 0, away: Iterable[int] = (), **layout: Any,
    ):  # fmt: skip
        """Lays out the memory and starts the workers.

        Args:
          num_workers: processes; 0 plays all games in this process.
          player: if empty, `poll` returns requests for actions, which `act` answers.
          hang_timeout_s: a worker without a heartbeat for this time is replaced.
          elsewhere: workers that are not this host's, which a subclass appends to `handles`.
          away: slots that the workers get only when they are released.
          layout: other values of `Layout`.
        """
        self.world = check_world(env)
        if player:
            parse_scripted(player, self.world)
            # Groups of one game: without waiting for actions, a game plays a whole slot in a warm cache.
            groups = max(games_per_worker, 1)
        check_groups(games_per_worker, groups, flag)
        self.layout = Layout(
            env=dict(env),
            observations=tuple(select_specs(self.world.specs, observations).items()),
            action=self.world.action,
            num_figures=len(self.world.figures),
            num_workers=max(num_workers, 0 if elsewhere else 1) + elsewhere,
            groups=groups,
            group_size=games_per_worker // groups,
            player=player,
            outputs=tuple((outputs or {}).items()),
            starts=tuple((starts or {}).items()),
            **layout,
        )
        self.layout.check_names()
        self.timers = Timers()
        self.restarts = self.dropped_steps = 0  # workers replaced, and steps lost with them
        self.given_up: list[int] = []  # episodes
        if library := getattr(self.world, "library", ""):
            print_once(library)
        self._inline = num_workers == 0 and not elsewhere
        self.num_local = self.layout.num_workers - elsewhere
        self.flag = flag
        self._start(first_episode, hang_timeout_s, away)

    def _start(self, first_episode: int, hang_timeout_s: float, away: Iterable[int]) -> None:
        remove_stale_folders()
        self._shared = SharedArrays(self.layout.specs())
        self._shared["next_episode"][0] = first_episode
        self.rollouts = {key: self._shared[key] for key in self.layout.row_specs()}  # [S, T or T + 1, E, ...]
        self._released: collections.deque[FilledSlot] = collections.deque()
        self.blame: collections.Counter[int] = collections.Counter()  # deaths of workers by episode, plus 1
        self._next_check = time.monotonic() + 0.5
        self.selector = selectors.PollSelector()  # of the workers' messages
        self._wake = os.eventfd(0)  # lets `release` interrupt a waiting `poll`
        self.selector.register(self._wake, selectors.EVENT_READ)
        self.handles: list[WorkerHandle] = []
        try:
            for index in range(self.num_local):
                make = InlineWorker if self._inline else ProcessWorker
                self.handles.append(make(self, index, hang_timeout_s, away))
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_games(self) -> int:
        return self.layout.num_workers * self.layout.groups * self.layout.group_size

    @property
    def processes(self) -> list[int]:
        return [handle.process.pid for handle in self.handles if isinstance(handle, ProcessWorker)]

    @property
    def next_episode(self) -> int:
        return int(self._shared["next_episode"][0])

    @property
    def worker_wait_s(self) -> float:
        return float(self._shared["waited_s"].sum())

    def poll(self, timeout_s: float = 1.0) -> tuple[list[Request], list[FilledSlot]]:
        """Waits for requests for actions, and for full slots, which belong to the caller until `release`."""
        self.take_back()
        if self._inline:
            inline = self.handles[0]
            assert isinstance(inline, InlineWorker)
            if not (received := inline.receive()):
                time.sleep(INLINE_TICK_S)  # lets threads that hold slots run
            return inline.read(received)
        requests: list[Request] = []
        fulls: list[FilledSlot] = []
        with self.timers("wait_for_workers"):
            ready = self.selector.select(timeout_s)
        for key, _ in ready:
            if key.fd == self._wake:
                os.eventfd_read(self._wake)
                continue
            worker: ProcessWorker = key.data
            messages = worker.receive()
            if messages is None:
                fulls += worker.replace(hung=False)
            else:
                asked, filled = worker.read(messages)
                requests += asked
                fulls += filled
        self.take_back()
        now = time.monotonic()
        if now > self._next_check:
            self._next_check = now + 0.5
            for handle in self.handles:
                if isinstance(handle, ProcessWorker) and handle.hangs(now):
                    fulls += handle.replace(hung=True)
        return requests, fulls

    def act(self, requests: list[Request], actions: np.ndarray, outputs: dict[str, np.ndarray] | None = None) -> None:
        """Answers requests: `actions` and every output are [sum of E, ...], in the order of the requests."""
        size, outputs = self.layout.group_size, dict(outputs or {})
        alive = [request.generation == self.handles[request.worker].generation for request in requests]
        if not all(alive):  # some workers were replaced after they asked
            kept = np.repeat(alive, size)
            requests = [request for request, lives in zip(requests, alive, strict=True) if lives]
            actions = actions[kept]
            outputs = {key: np.asarray(values)[: len(kept)][kept] for key, values in outputs.items()}
        if not requests:
            return
        begun = [number for number, request in enumerate(requests) if request.step == 0]
        starts = {key: outputs.pop(key) for key, _ in self.layout.starts}
        write_rows(self._shared["actions"], np.array([request[:2] for request in requests]), actions)
        places = np.array([(request.slot, request.step) for request in requests])
        for key, values in outputs.items():
            write_rows(self.rollouts[key], places, values)
        asked: dict[int, list[int]] = {}
        for request in requests:
            asked.setdefault(request.worker, []).append(request.group)
        for worker, its_groups in asked.items():
            self.handles[worker].act(its_groups)
        # Nobody reads these before the slot is full. They may be on the device: copied to the host only if needed, and
        # while the games play.
        for key, values in starts.items():
            for number in begun:
                rows = slice(number * size, (number + 1) * size)
                self.rollouts[key][requests[number].slot, 0] = np.asarray(values)[rows]

    def release(self, full: FilledSlot) -> None:
        """Returns a slot to its group; any thread may call this."""
        self._released.append(full)
        if not self._inline:
            self.wake()

    def wake(self) -> None:
        """Ends the waiting of `poll`; any thread may call this."""
        os.eventfd_write(self._wake, 1)

    def owe(self, episodes: Iterable[int]) -> None:
        """Has the workers of this host play these episodes before others."""
        lists = self._shared["redo"][: self.num_local].reshape(self.num_local * self.layout.groups, -1)
        for episode in episodes:
            redo = lists[np.count_nonzero(lists, 1).argmin()]
            redo[np.flatnonzero(redo == 0)[0]] = episode + 1  # a worker clears entries, and fills none

    def claim_episode(self) -> int:
        """The number of an episode that no worker has begun or will begin by itself."""
        return self._shared.claim("next_episode")

    @property
    def short(self) -> int:
        """Number of episodes that `owe` is to give so that all games of a group may end at once."""
        spare = np.count_nonzero(self._shared["redo"][: self.num_local], 2)
        return int(np.maximum(self.layout.group_size - spare, 0).sum())

    def is_responsible_for(self, full: FilledSlot, episode: int) -> bool:
        """Whether the group that wrote this rollout must deliver that episode."""
        return self.handles[full.worker].is_responsible_for(full.group, episode)

    def ended(self, full: FilledSlot) -> list[Ended]:
        ended_at, rows = self.ended_rows(full)
        kinds = list(self.world.figures.values())
        infos = (EpisodeInfo.from_row(row, kinds) for row in rows)
        return [Ended(step, game, info) for (step, game), info in zip(ended_at.tolist(), infos, strict=True)]

    def ended_rows(self, full: FilledSlot) -> tuple[np.ndarray, np.ndarray]:
        """Where episodes ended in a slot, as (step, game), and their results, as the worker has written them."""
        count = int(self._shared["num_episodes"][full.slot])
        return self._shared["ended_at"][full.slot, :count], self._shared["episodes"][full.slot, :count]

    def write_ended(self, full: FilledSlot, ended_at: np.ndarray, episodes: np.ndarray) -> None:
        """Writes the `ended_rows` of a slot, in a worker's place."""
        count = self._shared["num_episodes"][full.slot] = len(ended_at)
        self._shared["ended_at"][full.slot, :count], self._shared["episodes"][full.slot, :count] = ended_at, episodes

    def actions_of(self, groups: Iterable[tuple[int, int]]) -> np.ndarray:
        """The actions that `act` gave to some groups, as (worker, group). [sum of E, ...]"""
        none = np.zeros((0, *self.layout.action.shape), self.layout.action.dtype)
        return np.concatenate([none, *(self._shared["actions"][place] for place in groups)])

    def groups_with_slots(self) -> list[tuple[int, int]]:
        """This host's groups that play or wait for actions, as (worker, group)."""
        local = (handle for handle in self.handles if isinstance(handle, LocalWorker))
        return [(handle.index, group) for handle in local for group in handle.groups_with_slots()]

    def close(self) -> None:
        deadline = time.monotonic() + 2.0
        for handle in self.handles:
            handle.close(deadline)
        self.handles = []
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1
            self.selector.close()
            self.rollouts = {}
            self._shared.close()

    def take_back(self) -> None:
        """Has the workers get their released slots; `poll` does so."""
        while self._released:
            full = self._released.popleft()
            self.handles[full.worker].give_back(full)


class Pools:
    """Makes the pools of a run: of games on this host. Those of plugins (`Plugin.pools`) have games elsewhere, too."""

    def check(self, waits: bool) -> None:
        """Raises UserError if the config cannot be played so. `waits`: updates wait for all of the games."""

    def workers(self, num_workers: int) -> int:
        """The number of workers of a pool with `num_workers` on this host."""
        return max(num_workers, 1)

    def open(self, env: Mapping[str, Any], observations: tuple[str, ...], **options: Any) -> ActorPool:
        """A pool with these options, of `ActorPool`."""
        return ActorPool(env, observations, **options)
