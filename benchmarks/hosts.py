"""How many hosts of games one learner can use, and what binds when: a small queueing model of measured times.

    python -m benchmarks.hosts [cores per host] [games per worker] [microseconds of a core per step]

A host has two blocks under way, each half of its games: one plays while the other one is answered. The acting thread
takes all blocks that wait, and answers them with one call of the policy.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

# Seconds per block and per row of it, measured with toy games on two shared cores: CPU time of all threads of a
# process, Ray's included; of the acting thread alone, wall time.
HOST = 1.7e-3, 6e-6  # the actor on a host of games
PROCESS = 1.2e-3, 5e-6  # the learner's process
THREAD = 0.5e-3, 2e-6  # the acting thread, without the policy
# A call of the published network on an H100 takes 1.2 ms alone. Beside a learner, calls must take this long for the
# model to have the busy shares of three trainings on 16 cores (71, 73 and 83 %; docs/results/speed.md): they wait for
# updates on the GPU, and for the process's other threads.
POLICY = 4.7e-3, 0.4e-6
HERE = 0.04e-3, 1e-6  # the acting thread, per group of games of this host
BYTES = 927 + 12  # of a step: what the published network sees, and figures, up; action and request down
LATENCY = 1e-3  # seconds of an empty call of Ray, there and back
DEVICE = 1 / 959_482 + 1 / 1_195_456  # seconds of the GPU per step: acting in large calls, then learning
CARD = 25e9 / 8  # bytes/s


class Plan(NamedTuple):
    """Rates in steps/s, and the share of each resource that they use."""

    games: float  # what the hosts' cores could play
    steps: float  # what is expected
    blocks: float  # per second, over all hosts
    cores: float  # that the learner's process uses for them
    used: dict[str, float]

    @property
    def binds(self) -> str:
        return max(self.used, key=lambda name: self.used[name])


def plan(
    hosts: int, cores: int, games: int, step: float, *, host: tuple[float, float] = HOST,
    thread: tuple[float, float] = THREAD, policy: tuple[float, float] = POLICY, latency: float = LATENCY,
    device: float = DEVICE,
) -> Plan:  # fmt: skip
    """The rate of `hosts` with a worker per core, `games` per worker and `step` seconds of a core per step.

    A host is a queue of two customers that plays a block in `play`; between, a block is away: it travels, waits for the
    call under way, and for its own call, whose length grows with the blocks that came meanwhile.
    """
    rows = cores * games // 2
    play = (rows * step + host[0] + host[1] * rows) / cores
    work = thread[0] + (thread[1] + policy[1]) * rows  # of the acting thread, per block
    most = min(1 / (hosts * work), 1 / (hosts * rows * device), CARD / (BYTES * rows * hosts))  # blocks/s of a host
    low, high = 0.0, min(1 / play, most)
    for _ in range(60):  # the rate at which what the hosts deliver is what was assumed
        rate = (low + high) / 2
        call = policy[0] / max(1 - hosts * rate * work, 1e-9)
        away = (latency + 1.5 * call) / play
        delivers = (1 - away**2 / 2 / (1 + away + away**2 / 2)) / play  # both blocks away: the host idles
        low, high = (rate, high) if delivers > rate else (low, rate)
    blocks = hosts * low
    used = {
        "games": low * play,
        "acting thread": blocks * work,
        "device": blocks * rows * device,
        "network card": blocks * rows * BYTES / CARD,
    }
    return Plan(hosts * cores / step, blocks * rows, blocks, blocks * (PROCESS[0] + PROCESS[1] * rows), used)


def main() -> None:
    """Prints a table for up to a hundred hosts."""
    given = [float(word) for word in sys.argv[1:]]
    cores, games, step = (*given, *(16.0, 64.0, 100.0)[len(given) :])
    print(f"{cores:.0f} cores per host, {games:.0f} games per worker, {step:.0f} us per step, {BYTES} bytes\n")
    names = tuple(plan(1, int(cores), int(games), step / 1e6).used)
    print(f"| hosts | the games could | expected steps/s | blocks/s | cores for it | {' | '.join(names)} | binds |")
    print(f"| ---: | ---: | ---: | ---: | ---: | {' | '.join('---:' for _ in names)} | --- |")
    for hosts in (1, 2, 4, 10, 30, 100):
        one = plan(hosts, int(cores), int(games), step / 1e6)
        shares = " | ".join(f"{share:.0%}" for share in one.used.values())
        rates = f"{one.games:,.0f} | {one.steps:,.0f} | {one.blocks:,.0f} | {one.cores:.1f}"
        print(f"| {hosts} | {rates} | {shares} | {one.binds} |")


if __name__ == "__main__":
    main()
