"""The parent's view of a worker: its process, its slots, and the episodes to play again when it dies.

A slot always belongs to the same group. So a worker touches few slots, a group can always go on when its slots are
released, and the slots of a dead worker are known.
"""

from __future__ import annotations

import collections
import signal
import time

from motif_jax.actors.layout import Full, Layout, Op, Request
from motif_jax.actors.shared_arrays import SharedArrays
from motif_jax.actors.transport import InlineWorker, Message, ProcessWorker
from motif_jax.structs import UserError

START_TIMEOUT_S = 600.0  # for imports and the first games, on a machine that is busy starting many
LOOK_S = 1.0  # most silence that counts between two checks of a worker
GIVE_UP_AFTER = 3  # deaths of workers in the same episode
FAILURES_IN_A_ROW = 8  # deaths of a handle's workers without a finished slot


class WorkerSilence:
    """How long a worker has work, but shows no sign of life."""

    def __init__(self, now: float):
        self._last_beat, self._looked_at, self._seconds = -1, now, 0.0

    def seconds(self, now: float, beat: int, idle: bool) -> float:
        """Its length; `beat` counts the signs of life.

        At most LOOK_S counts between two checks: if this process was stopped, or waited for a busy machine, so may the
        worker.
        """
        self._seconds += min(now - self._looked_at, LOOK_S)
        self._looked_at = now
        if beat != self._last_beat or (beat and idle):
            self._last_beat, self._seconds = beat, 0.0
        return self._seconds


class WorkerHandle:
    """The worker with number `index`, and its successors when it dies."""

    def __init__(
        self, layout: Layout, shared: SharedArrays, index: int, inline: bool, hang_timeout_s: float, flag: str
    ):
        """Starts the first worker, in this process if `inline`."""
        self.index = index
        self.generation = 0  # number of earlier workers
        self._layout, self._shared, self._inline, self.hang_timeout_s = layout, shared, inline, hang_timeout_s
        self._flag = flag
        self._failures = 0
        self._held: list[collections.deque[int]] = []  # the worker's slots by group, the current one first
        self._away: set[int] = set()  # slots held by the caller of `poll`
        self.start()

    def start(self) -> None:
        """Starts a new worker and grants it all slots except those held by the caller of `poll`."""
        groups, per_group = self._layout.groups, self._layout.slots_per_group
        self.link: ProcessWorker | InlineWorker = (InlineWorker if self._inline else ProcessWorker)(
            self._layout, self._shared, self.index
        )
        self._sent = 0  # messages sent to this worker
        self._silence = WorkerSilence(time.monotonic())
        self._held = [collections.deque() for _ in range(groups)]
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
        self.link.send(messages)
        self._sent += len(messages)

    def act(self, groups: list[int]) -> None:
        """Tells the worker that the actions of some groups are in shared memory."""
        self._send([(Op.ACT, group, 0) for group in groups])

    def give_back(self, full: Full) -> None:
        """Takes back a slot from the caller of `poll` and grants it to the worker again."""
        self._away.discard(full.slot)
        self._grant(full.group, full.slot)

    def read(self, messages: list[Message]) -> tuple[list[Request], list[Full]]:
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
                fulls.append(Full(self.index, group, slot))
        return requests, fulls

    def hangs(self, now: float) -> bool:
        """Whether the worker has work, but has not shown a sign of life for too long."""
        beat = int(self._shared["beat"][self.index])
        idle = bool(self._shared["handled"][self.index] == self._sent)
        return self._silence.seconds(now, beat, idle) > (self.hang_timeout_s if beat else START_TIMEOUT_S)

    def replace(self, hung: bool, blame: collections.Counter[int]) -> tuple[list[Full], int, list[int]]:
        """Kills the worker and starts another one in its place.

        `blame`: deaths of workers by episode (plus 1), to which this one is added.

        Returns:
          Unread full slots, number of lost steps, episodes that are given up.
        """
        assert isinstance(self.link, ProcessWorker)
        status, messages = self.link.kill()
        fulls = self.read([message for message in messages if message[0] == Op.FULL])[1]
        lost = int(self._shared["played"][self.index].sum()) * self._layout.group_size
        self._failures += 1
        if self._failures >= FAILURES_IN_A_ROW:
            raise UserError(
                f"actor worker {self.index} ended {FAILURES_IN_A_ROW} times without finishing a rollout, last with "
                f"status {status}; if memory ran out, lower num_workers and games_per_worker ({self._flag})"
            )
        # A SIGKILL from elsewhere (a person, the kernel out of memory) is not the current episode's fault.
        own_fault = hung or status != -signal.SIGKILL
        given_up = [
            episode for group in range(self._layout.groups) for episode in self._play_again(group, own_fault, blame)
        ]
        for name in ("stepping", "played", "beat", "handled"):
            self._shared[name][self.index] = 0
        self.generation += 1
        self.start()
        return fulls, lost, given_up

    def _play_again(self, group: int, own_fault: bool, blame: collections.Counter[int]) -> list[int]:
        """Lists the lost episodes for the group's next worker; returns those that are given up."""
        playing, redo = self._shared["playing"][self.index, group], self._shared["redo"][self.index, group]
        undelivered = self._shared["undelivered"][self.index, group]
        owed = set(playing.tolist()) | set(undelivered.tolist()) | set(redo.tolist())
        stepping = int(self._shared["stepping"][self.index, group])
        given_up = []
        if stepping and own_fault:
            number = int(playing[stepping - 1])
            blame[number] += 1
            if blame[number] >= GIVE_UP_AFTER:
                owed.discard(number)
                given_up.append(number - 1)
        owed.discard(0)
        playing[:] = undelivered[:] = redo[:] = 0
        redo[: len(owed)] = sorted(owed)
        return given_up

    def is_responsible_for(self, group: int, episode: int) -> bool:
        """Whether a group of this handle must play this episode, or has it in an undelivered slot."""
        lists = (self._shared[name][self.index, group] for name in ("playing", "undelivered", "redo"))
        return any((numbers == episode + 1).any() for numbers in lists)
