"""Games on other hosts against the same games here, on a cluster of Ray that this machine plays by itself.

    python -m benchmarks.remote here [rows in a block] [seconds] [turns]    a host of two workers against two here
    python -m benchmarks.remote hosts [milliseconds per step] [seconds]     1, 2 and 4 hosts against benchmarks/hosts.py

`here`: NetHack with random actions, both pools in turn in one process. `hosts`: games and a policy that sleep, slow
enough for the cores of one machine to be those of several hosts.
"""

from __future__ import annotations

import collections
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.hosts import plan
from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.acting import answer
from motif_jax.actors.pool import ActorPool
from motif_jax.contrib.ray_games import cluster
from motif_jax.contrib.ray_games.remote import RemotePool
from motif_jax.contrib.ray_games.sections import RayGames
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS
from motif_jax.envs.toy import ToyGame

SLEPT_MS = "MOTIF_JAX_SLEPT_MS"
POLICY = 30e-3, 0.1e-3  # of the policy that sleeps: seconds per call and per row
GAMES = 128  # per worker, in `hosts`
TICKS = os.sysconf("SC_CLK_TCK")


class Sleeping(ToyGame):
    """A game whose steps take a time, but none of a core's."""

    def step(self, action: int) -> float:
        time.sleep(float(os.environ[SLEPT_MS]) / 1e3)
        return super().step(action)


class Policy(RandomPolicy):
    """Reads what the published network does; may sleep."""

    reads: tuple[str, ...] = POLICY_OBSERVATIONS

    def __init__(self, sleeps: tuple[float, float] = (0.0, 0.0)):
        super().__init__(23)
        self._sleeps = sleeps

    def __call__(self, observations: dict, first: np.ndarray, games: np.ndarray) -> tuple[np.ndarray, dict]:
        time.sleep(self._sleeps[0] + self._sleeps[1] * len(games))
        return super().__call__(observations, first, games)


class Drive:
    """A pool that is driven for some seconds at a time, and what it did in all of them."""

    def __init__(self, pool: ActorPool, policy: Policy):
        self.pool, self._policy = pool, policy
        self.rates: list[float] = []
        self.rows = self.blocks = 0
        self.cpu: collections.defaultdict[str, float] = collections.defaultdict(float)
        self.fulls: collections.Counter[int] = collections.Counter()  # by worker

    def play(self, seconds: float, counts: bool = True) -> None:
        rows, before, began = 0, cpu_of_processes(), time.monotonic()
        while time.monotonic() < began + seconds:
            requests, fulls = self.pool.poll(0.2)
            answer(self.pool, requests, self._policy)
            rows += len(requests) * self.pool.layout.group_size
            self.blocks += bool(requests) and counts
            for full in fulls:
                self.fulls[full.worker] += counts
                self.pool.release(full)
        if counts:
            self.rates.append(rows / (time.monotonic() - began))
            self.rows += rows
            for kind, spent in cpu_of_processes().items():
                self.cpu[kind] += spent - before[kind]

    def warm_up(self) -> None:
        """Plays until every worker has filled a slot."""
        seen = 0
        while seen < 2 * self.pool.layout.num_workers:
            requests, fulls = self.pool.poll(0.2)
            answer(self.pool, requests, self._policy)
            seen += len(fulls)
            for full in fulls:
                self.pool.release(full)

    def cpu_us(self) -> str:
        """Microseconds of CPU time per step, by kind of process."""
        each = {kind: spent / self.rows * 1e6 for kind, spent in self.cpu.items()}
        return f"{sum(each.values()):.1f} ({', '.join(f'{kind} {value:.1f}' for kind, value in sorted(each.items()))})"


def cpu_of_processes() -> dict[str, float]:
    """CPU seconds of this process, workers and actors; Ray's own processes cost the same without a game."""
    spent = {"games": 0.0, "actor": 0.0, "acting": time.process_time()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read()
            kind = "games" if "motif_jax.actors.worker" in words else "actor" if "ray::GamesOfHost" in words else ""
            if kind:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                spent[kind] += (int(fields[11]) + int(fields[12])) / TICKS
        except OSError:  # it has ended
            continue
    return spent


def pool_of(hosts: int, cores: int, env: dict[str, Any], games: int, rollout_length: int) -> ActorPool:
    """A pool with `cores` workers here, or on each of `hosts`."""
    options: dict[str, Any] = {"games_per_worker": games, "rollout_length": rollout_length, "seed": 5}
    if not hosts:
        return ActorPool(env, POLICY_OBSERVATIONS, num_workers=cores, **options)
    section = RayGames(address="local", hosts=hosts, cores=cores)
    return RemotePool(env, POLICY_OBSERVATIONS, cluster=section, num_workers=0, **options)


def against_here(rows: int, seconds: float, turns: int) -> None:
    """Prints rates and CPU times of two workers here and on a host, in turn."""
    options: dict[str, Any] = {"env": {"task": "score"}, "games": rows, "rollout_length": 32 if rows < 1000 else 8}
    with pool_of(0, 2, **options) as local, pool_of(1, 2, **options) as remote:
        here, there = (Drive(pool, Policy()) for pool in (local, remote))
        for drive in (here, there):
            drive.warm_up()
        for _ in range(turns):
            for drive in (here, there):
                drive.play(0.5, counts=False)
                drive.play(seconds)
    ratios = np.array(there.rates) / np.array(here.rates)
    for name, drive in (("here", here), ("host", there)):
        print(f"{name}: {np.median(drive.rates):,.0f} steps/s, {drive.cpu_us()} us of CPU per step, "
              f"{drive.rows / drive.blocks:.0f} rows a call")  # fmt: skip
    cpu = (sum(here.cpu.values()) / here.rows) / (sum(there.cpu.values()) / there.rows)
    print(f"host / here: {np.median(ratios):.3f} of {np.round(np.sort(ratios), 2).tolist()} by the clock, "
          f"{cpu:.3f} by CPU time; load {os.getloadavg()[0]:.1f}")  # fmt: skip


def against_the_model(seconds: float) -> None:
    """Prints the rates of sleeping games on several hosts, beside those of the model."""
    env = {"task": "benchmarks.remote:Sleeping"}
    with pool_of(0, 1, env, GAMES, 16) as pool:
        drive = Drive(pool, Policy())
        drive.warm_up()
        drive.play(seconds)
        step = 1 / drive.rates[0]
    print(f"{step * 1e3:.2f} ms per step")
    for hosts in (1, 2, 4):
        with pool_of(hosts, 2, env, GAMES, 16) as pool:
            drive = Drive(pool, Policy(POLICY))
            drive.warm_up()
            drive.play(seconds)
        model = plan(hosts, 2, GAMES, step, policy=POLICY, device=1e-12)
        each = [drive.fulls[first] + drive.fulls[first + 1] for first in range(0, 2 * hosts, 2)]
        print(f"{hosts}: {drive.rates[0]:,.0f} steps/s, model {model.steps:,.0f}; rollouts of each host {each}; "
              f"games busy {model.used['games']:.0%}; load {os.getloadavg()[0]:.1f}")  # fmt: skip


def main() -> None:
    """Runs one of the measurements."""
    kind, *given = sys.argv[1:]
    slept, length = (*given, *("1", "20")[len(given) :])[:2]
    os.environ[SLEPT_MS] = slept  # which Ray's processes inherit
    cluster.usable_cores = lambda: 64  # hosts of one machine share its cores
    cluster.connect("local")
    if kind == "here":
        rows, seconds, turns = (*given, *("256", "4", "5")[len(given) :])
        against_here(int(rows), float(seconds), int(turns))
    else:
        against_the_model(float(length))


if __name__ == "__main__":
    main()
