"""Games on other hosts of a cluster of Ray, beside those of this host, in one pool.

    acting thread (RemotePool)                        another host (GamesOfHost, an actor of Ray)
    GameHost.send ── Down: actions, free slots, ────> its own ActorPool: workers over shared memory
                     numbers of episodes
    rows of many groups written where local  <── Up:  the rows of the groups that wait, as soon as half of them do
    workers would have written them

Two calls are under way per host: while one block of groups travels and is answered, the other one plays. The numbers of
episodes come from this pool's own counter, so each is played once, wherever. A host that is lost is an actor that died:
the numbers that it had are given to others, and Ray starts another actor where it finds the cores. Nobody waits for it.
"""

from __future__ import annotations

import collections
import functools
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.pool import FAILURES_IN_A_ROW, START_TIMEOUT_S, ActorPool, Pools, WorkerHandle
from motif_jax.actors.worker import FilledSlot, Request, read_rows, write_rows
from motif_jax.console import print_line
from motif_jax.contrib.ray_games.cluster import check_room, connect, program
from motif_jax.contrib.ray_games.sections import NAME, RayGames
from motif_jax.envs.world import SeedStream
from motif_jax.structs import ArraySpec, UserError

UNDER_WAY = 2  # calls per host
CALLS = 8  # at the same time in an actor; all but one wait for their turn
LIVES = 2**20  # the generations of a worker's processes within one actor
TICK_S = 0.2  # after which a host answers without rows
FLAG = "--config.ray_games.hosts"


# To a host: requests R with their actions [R * E, ...], full slots that are free again, numbers of episodes to play.
Down = tuple[list[Request], np.ndarray, list[FilledSlot], list[int]]


class Up(NamedTuple):
    """From a host: groups that wait and slots that are full, with their last rows; counters."""

    number: int  # of this block: calls may be answered in any order
    requests: list[Request]
    fulls: list[FilledSlot]
    rows: np.ndarray  # of `places_of`, one array after the other, as bytes: Ray's work grows with the number of arrays
    ended: list[tuple[np.ndarray, np.ndarray]]  # of each full slot: `ended_at` and `episodes` of those that ended
    given_up: list[int]
    short: int  # numbers of episodes that it lacks
    counters: tuple[int, int, float]  # restarts, dropped steps, waited seconds, since it began


def travelling(
    pool: ActorPool, requests: Iterable[Request], fulls: Iterable[FilledSlot]
) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays that the workers write, each with the slots and steps of its rows that are new.

    These are observations that are waited for, and the steps before them. Of full slots with scripted players, who ask
    for nothing, they are all.
    """
    layout = pool.layout
    seen = [(request.slot, request.step) for request in requests]
    for full in fulls:
        first = 0 if layout.player else layout.rollout_length
        seen += [(full.slot, step) for step in range(first, layout.rollout_length + 1)]
    observed = np.array(seen, np.int64).reshape(-1, 2)
    played = observed[observed[:, 1] > 0] - (0, 1)
    given = {key for key, _ in (*layout.outputs, *layout.starts)}
    for key, (rows, _) in layout.row_specs().items():
        places = observed if rows > layout.rollout_length else played
        if key not in given and len(places):
            yield key, places


# ---- on the other host


class HostGames:
    """The pool of a host, whose workers play for another host's acting thread; see `ActorPool`."""

    def __init__(self, options: Mapping[str, Any], episodes: list[int], away: list[int]):
        outputs = {key: ArraySpec(*spec) for key, spec in options["outputs"].items()}
        self._pool = ActorPool(**{**options, "outputs": outputs}, leased=True, away=away)
        self._pool.owe(episodes)
        self._inbox: collections.deque[Down] = collections.deque()
        self._turn, self._number, self._given_up = threading.Lock(), 0, 0
        self._expected = 0  # episodes that it has asked for and not got yet
        self._asking: set[tuple[int, int]] = set()  # groups that wait for actions

    def exchange(self, down: Down) -> Up:
        """Takes one block, and returns the next: calls may overlap, and what comes down is used at once."""
        self._inbox.append(down)
        self._pool.wake()
        with self._turn:
            return self._collect()

    def _collect(self) -> Up:
        layout, deadline = self._pool.layout, time.monotonic() + TICK_S
        half = -(-layout.num_workers * layout.groups // 2)
        requests: list[Request] = []
        fulls: list[FilledSlot] = []
        left = TICK_S
        while left > 0 and len({one[:2] for one in (*requests, *fulls)}) < half:
            while self._inbox:
                self._take(*self._inbox.popleft())
            plays = any(place not in self._asking for place in self._pool.groups_with_slots())
            if (requests or fulls) and not plays:  # no group has a slot and does not wait for actions
                break
            asked, full = self._pool.poll(left)
            requests += asked
            fulls += full
            self._asking |= {request[:2] for request in asked}
            left = deadline - time.monotonic()
        return self._pack(requests, fulls)

    def _take(
        self, requests: list[Request], actions: np.ndarray, released: list[FilledSlot], episodes: list[int]
    ) -> None:
        self._asking -= {request[:2] for request in requests}
        self._pool.act(requests, actions)
        for full in released:
            self._pool.release(full)
        self._pool.owe(episodes)
        self._expected -= len(episodes)

    def _pack(self, requests: list[Request], fulls: list[FilledSlot]) -> Up:
        pool = self._pool
        rows = [np.zeros(0, np.uint8)]
        for key, places in travelling(pool, requests, fulls):
            rows.append(read_rows(pool.rollouts[key], places).reshape(-1).view(np.uint8))
        ended = [pool.ended_rows(full) for full in fulls]
        short = max(pool.short - self._expected, 0)
        self._expected += short
        self._number, given_up = self._number + 1, pool.given_up[self._given_up :]
        self._given_up += len(given_up)
        counters = pool.restarts, pool.dropped_steps, pool.worker_wait_s
        return Up(self._number, requests, fulls, np.concatenate(rows), ended, given_up, short, counters)


@functools.cache
def make_actor() -> type:
    """The class of Ray's actors. It is made here so that it travels itself: a host may lack this program."""

    class GamesOfHost:
        def begin(self, versions: dict[str, str], cores: int, paths: list[str], *arguments: Any) -> tuple[str, str]:
            import socket

            sys.path += [path for path in paths if path not in sys.path]
            try:
                from motif_jax.contrib.ray_games.cluster import difference
                from motif_jax.contrib.ray_games.remote import HostGames
            except ImportError as error:
                return socket.gethostname(), f"the host {socket.gethostname()} lacks this program: {error}"
            problem = difference(versions, cores)
            if not problem:
                self.games = HostGames(*arguments)
            return socket.gethostname(), problem

        def exchange(self, down: Any) -> Any:
            return self.games.exchange(down)

    return GamesOfHost


# ---- on this host


class RemoteWorker(WorkerHandle):
    """A worker on another host, which replaces it itself; what is done with it is noted for the host's next block."""

    def __init__(self, host: GameHost, index: int):
        self.index, self.generation, self._host = index, 0, host

    def act(self, groups: list[int]) -> None:
        self._host.acted += [(self.index, group) for group in groups]

    def give_back(self, full: FilledSlot) -> None:
        self._host.away.discard(full.slot)
        self._host.released.append(full)

    def is_responsible_for(self, group: int, episode: int) -> bool:
        return episode in self._host.owed or episode in self._host.pool.free


class GameHost:
    """One host of games: an actor of Ray, and its successors when it dies."""

    def __init__(self, pool: RemotePool, number: int, first: int):
        """`first`: of its workers in the pool."""
        self.pool, self._first, self.name = pool, first, f"host {number + 1} of games"
        self._first_slot = first * pool.layout.groups * pool.layout.slots_per_group
        self.owed: set[int] = set()  # numbers of the episodes that it was given and has not finished
        self.away: set[int] = set()  # its slots that the caller of `poll` holds
        self.released: list[FilledSlot] = []
        self.life, self._failures = 0, 0
        self.workers = [RemoteWorker(self, first + number) for number in range(pool.cores)]

    def start(self) -> None:
        """Asks Ray for an actor, which starts as soon as there are cores for it."""
        self.life += 1
        layout, self.plays, self.under_way, self._next = self.pool.layout, False, 0, 1
        self.acted: list[tuple[int, int]] = []
        self._asked: dict[tuple[int, int], Request] = {}
        self._played: dict[tuple[int, int], int] = {}  # steps in the current slot of each group
        self._early: dict[int, Up] = {}
        self.released, self._counters = [], (0, 0, 0.0)
        games = len(self.workers) * layout.groups * layout.group_size
        self.short = 0
        # Spare episodes are asked for when it plays, as all hosts need some of a short evaluation. A successor asks for
        # all of its episodes then: it may wait for cores, and those of the lost one must not.
        episodes = self._lease(games) if self.life == 1 else []
        away = [slot - self._first_slot for slot in sorted(self.away)]
        actor = self.pool.ray.remote(make_actor()).options(
            num_cpus=self.pool.cores, max_concurrency=CALLS, scheduling_strategy="SPREAD", enable_task_events=False
        )
        self._actor = actor.remote()
        arguments = self.pool.host_options, episodes, away
        self._watch(self._actor.begin.remote(program(), self.pool.cores, sys.path, *arguments))

    def _lease(self, count: int) -> list[int]:
        episodes = [self.pool.claim_episode() for _ in range(count)]
        self.owed.update(episodes)
        return episodes

    def _watch(self, reference: Any) -> None:
        """Has the answer of a call put to those that have arrived, by Ray's own thread."""
        life, self.under_way = self.life, self.under_way + 1

        def arrive(future: Future[Any]) -> None:
            if life == self.life:
                self.pool.arrived.append((self, life, future))
                self.pool.wake()

        reference.future().add_done_callback(arrive)

    def send(self) -> None:
        asked = [self._there(self._asked.pop(place)) for place in self.acted]
        actions = self.pool.actions_of(self.acted)
        released = [self._there(full) for full in self.released]
        down: Down = asked, actions, released, self._lease(self.short)
        self.acted, self.released, self.short = [], [], 0
        self._watch(self._actor.exchange.remote(down))

    def _there(self, one: Any) -> Any:
        return one._replace(worker=one.worker - self._first, slot=one.slot - self._first_slot)

    def _here(self, one: Any) -> Any:
        return one._replace(worker=one.worker + self._first, slot=one.slot + self._first_slot)

    def arrived(self, future: Future[Any]) -> list[Up]:
        """The blocks that a call has brought, in their order; handles the loss of the actor."""
        self.under_way -= 1
        error = future.exception()
        if isinstance(error, self.pool.ray.exceptions.RayTaskError):  # raised over there
            cause = error.cause
            if type(cause) is UserError:
                raise UserError(f"{cause}; on {self.name}")
            raise cause if isinstance(cause, UserError) else error
        if error:
            self._lost(error)
            return []
        answer = future.result()
        if not isinstance(answer, Up):
            self.name, problem = f"the host {answer[0]}", answer[1]
            if problem:
                self.pool.refuse(self, problem)
            self.plays = not problem
            return []
        self._early[answer.number] = answer
        ready = []
        while self._next in self._early:
            ready.append(self._early.pop(self._next))
            self._next += 1
        return ready

    def take(self, up: Up) -> tuple[list[Request], list[FilledSlot]]:
        """Writes a block's rows into this pool's memory; returns its requests and full slots."""
        pool = self.pool
        requests, fulls = [*map(self._here, up.requests)], [*map(self._here, up.fulls)]
        at = 0
        for key, places in travelling(pool, requests, fulls):
            array, number = pool.rollouts[key], len(places)
            end = at + number * array[0, 0].nbytes
            values = up.rows[at:end].view(array.dtype).reshape(number * array.shape[2], *array.shape[3:])
            write_rows(array, places, values)
            at = end
        for full, (ended_at, episodes) in zip(fulls, up.ended, strict=True):
            pool.write_ended(full, ended_at, episodes)
            self.owed.difference_update(ended.info.episode for ended in pool.ended(full))
            self._failures = 0
        self.away.update(full.slot for full in fulls)
        marked = []
        for request in requests:  # what an earlier worker or actor asked is not answered
            self._asked[request.worker, request.group] = request
            self._played[request.worker, request.group] = request.step
            generation = self.life * LIVES + request.generation
            self.workers[request.worker - self._first].generation = generation
            marked.append(request._replace(generation=generation))
        self.owed.difference_update(up.given_up)
        pool.given_up += up.given_up
        self.short += up.short
        restarts, dropped, waited = (now - then for now, then in zip(up.counters, self._counters, strict=True))
        self._counters = up.counters
        pool.restarts, pool.dropped_steps = pool.restarts + int(restarts), pool.dropped_steps + int(dropped)
        pool.waited_there_s += waited
        return marked, fulls

    def _lost(self, error: BaseException) -> None:
        reason = str(error).strip().splitlines()[0]
        print_line(f"{self.name} is lost with {len(self.owed)} games, which begin anew: {reason}")
        self._failures += 1
        self.pool.restarts += 1
        self.pool.dropped_steps += sum(self._played.values()) * self.pool.layout.group_size
        if self._failures >= FAILURES_IN_A_ROW:
            self.pool.refuse(self, f"{self.name} was lost {self._failures} times without finishing a rollout")
            return
        self.close()  # Ray may only have lost sight of it
        self.start()

    def close(self) -> None:
        """Ends the actor; its games are played elsewhere."""
        self.life += 1  # of this one, nothing more is accepted
        self.pool.ray.kill(self._actor)
        self.pool.free += sorted(self.owed)
        self.owed.clear()
        for worker in self.workers:
            worker.generation = -1  # of requests that the caller still holds


class RemotePool(ActorPool):
    """A pool whose last workers are on other hosts; no local ones if `num_workers` is 0."""

    def __init__(self, env: Mapping[str, Any], observations: tuple[str, ...], *, cluster: RayGames, **options: Any):
        """Starts the workers here and there. `cluster`: the config's section; `options`: of `ActorPool`."""
        self.ray = connect(cluster.address)
        check_room(self.ray, cluster.hosts, cluster.cores, cluster.address)
        self.cores, self.free = cluster.cores, collections.deque[int]()  # episodes of hosts that were lost
        self.arrived: collections.deque[tuple[GameHost, int, Future[Any]]] = collections.deque()
        self._hosts: list[GameHost] = []
        self._meeting, self.waited_there_s = True, 0.0
        # Plain values, which a host without this program can read, to say so.
        outputs = {key: tuple(spec) for key, spec in (options.get("outputs") or {}).items()}
        there = {"stream": int(options.get("stream", SeedStream.TRAIN)), "outputs": outputs, "starts": None}
        self.host_options = {"env": dict(env), "observations": observations, **options, **there}
        self.host_options["num_workers"] = cluster.cores
        super().__init__(env, observations, elsewhere=cluster.hosts * cluster.cores, **options)
        try:
            for number in range(cluster.hosts):
                self._hosts.append(GameHost(self, number, self.num_local + number * self.cores))
                self.handles += self._hosts[-1].workers
            for host in self._hosts:
                host.start()
            self._meet()
        except BaseException:
            self.close()
            raise

    def _meet(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while waiting := [host.name for host in self._hosts if not host.plays]:
            if time.monotonic() > deadline:
                raise UserError(f"{waiting[0]} has not started in {START_TIMEOUT_S:.0f} seconds ({FLAG})")
            self._receive()
            time.sleep(0.05)
        self._meeting = False
        names = [host.name for host in self._hosts]
        print_line(f"games on {len(names)} other hosts, {self.cores} workers each: {', '.join(names)}")

    def claim_episode(self) -> int:
        """The number of an episode that begins next: one of a host that was lost, or a new one."""
        return self.free.popleft() if self.free else super().claim_episode()

    @property
    def worker_wait_s(self) -> float:
        return super().worker_wait_s + self.waited_there_s

    def refuse(self, host: GameHost, problem: str) -> None:
        """Does without a host that cannot play; raises UserError if the run has not begun, or no host is left."""
        if self._meeting or (len(self._hosts) == 1 and not self.num_local):
            raise UserError(f"{problem} ({FLAG})")
        print_line(f"{problem}; the run goes on without it")
        host.close()
        self._hosts.remove(host)

    def poll(self, timeout_s: float = 1.0) -> tuple[list[Request], list[FilledSlot]]:
        self.take_back()
        for host in self._hosts:
            while host.plays and host.under_way < UNDER_WAY:
                host.send()
        if self.free and self.num_local:
            self.owe(self.claim_episode() for _ in range(min(self.short, len(self.free))))
        requests, fulls = super().poll(0 if self.arrived else timeout_s)
        asked, filled = self._receive()
        return requests + asked, fulls + filled

    def _receive(self) -> tuple[list[Request], list[FilledSlot]]:
        requests: list[Request] = []
        fulls: list[FilledSlot] = []
        while self.arrived:
            host, life, future = self.arrived.popleft()
            for up in host.arrived(future) if life == host.life else ():
                with self.timers("receive"):
                    asked, filled = host.take(up)
                requests += asked
                fulls += filled
        return requests, fulls

    def act(self, requests: list[Request], actions: np.ndarray, outputs: dict[str, np.ndarray] | None = None) -> None:
        super().act(requests, actions, outputs)
        for host in self._hosts:
            if host.acted:
                with self.timers("send"):
                    host.send()

    def close(self) -> None:
        for host in self._hosts:
            host.close()
        self._hosts = []
        super().close()


class RayPools(Pools):
    """Pools whose last workers are on the cluster's hosts."""

    def __init__(self, cluster: RayGames):
        self._cluster = cluster

    def check(self, waits: bool) -> None:
        if not self._cluster.address:
            raise UserError(f"games on other hosts need a cluster's address (--config.ray_games.address, {FLAG})")
        if waits:
            raise UserError(
                "updates do not wait for games on other hosts, so a run that is synchronous, or whose algorithm is "
                f"on-policy, cannot use them ({FLAG}, --config.policy.synchronous, .algorithm)"
            )

    def workers(self, num_workers: int) -> int:
        return num_workers + self._cluster.hosts * self._cluster.cores

    def open(self, env: Mapping[str, Any], observations: tuple[str, ...], **options: Any) -> ActorPool:
        return RemotePool(env, observations, cluster=self._cluster, **options)


def pools(config: Any) -> Pools | None:
    """The plugin's `pools`, if the config asks for games on other hosts."""
    cluster: RayGames = config.plugins[NAME]
    return RayPools(cluster) if cluster.hosts else None
