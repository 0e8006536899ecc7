"""A table of steps per second on machines that are not at hand, computed from the rows that were measured here.

Each of three limits is a straight division, and the smallest one is the figure:

    games    C / (w + h)   C cores, which workers (w seconds per step) and the parent (h) share
    parent   P / h         P parent processes, one per GPU; each is taken to use one core at a time (Python's lock)
    device   G F / f       G GPUs that reach F operations per second, f operations per step to act and to learn

w is the lock-step stepper's time and what a worker adds around it; h is all of the parent's threads together. What is
left out: cores are as fast as here and all of them, memory and caches do not get narrower with more workers, batches
reach the GPU while it computes, and it never waits for single small calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from motif_jax.console import print_line
from motif_jax.stages.benchmark.rows import Row, say

MACHINES = ((16, 1), (64, 8))  # cores, GPUs
GPU_FLOPS = 50e12  # that such small networks are taken to reach, a twentieth of what a large GPU offers in bfloat16
MOST_GAMES = 1024  # the rows for so many games are used, or for as many as were measured
STEPPER, WORKER, PARENT = "env.lockstep_stepper", "pipeline.worker_us_per_step", "pipeline.host_us_per_step"
OPERATIONS = "policy.flop_per_step."


def outlook(rows: Iterable[Row]) -> list[Row]:
    """The computed rows, printed; none if the parts that they need were not measured."""
    values = {row.name: row.value for row in rows}
    networks = [name.removeprefix(OPERATIONS) for name in values if name.startswith(OPERATIONS)]
    stepper, worker, parent = (_of_most_games(values, name) for name in (STEPPER, WORKER, PARENT))
    if not networks or stepper is None or worker is None or parent is None:
        print_line("benchmark: for an outlook on other machines, measure the parts env, policy and pipeline together")
        return []
    game_us = 1e6 / stepper + worker
    print_line(
        f"benchmark: computed, not measured: {game_us:.1f} us per step in workers, {parent:.2f} us in the parent, GPUs "
        f"that reach {GPU_FLOPS / 1e12:.0f} TFLOP/s"
    )
    found = []
    for cores, gpus in MACHINES:
        for network in networks:
            flops = 1e6 * values[OPERATIONS + network]
            limits = limits_of(cores, gpus, game_us / 1e6, parent / 1e6, flops)
            least = min(limits, key=lambda name: limits[name])
            sizes = {"network": network, "limited by": least} | {
                name: f"{limit:,.0f}" for name, limit in limits.items()
            }
            found.append(
                say(Row(f"computed.{cores}_cores.{gpus}_gpus.{network}", round(limits[least]), "steps/s", sizes))
            )
    return found


def limits_of(cores: int, gpus: int, game_s: float, parent_s: float, flops: float) -> dict[str, float]:
    """Steps per second that each part allows; see the module docstring.

    Args:
      cores, gpus: of the machine.
      game_s, parent_s: seconds of a core per step, in workers and in the parent.
      flops: operations per step.
    """
    return {
        "games": cores / (game_s + parent_s),
        "parent": gpus / parent_s,
        "device": gpus * GPU_FLOPS / flops,
    }


def _of_most_games(values: Mapping[str, float], name: str) -> float | None:
    """The value of `name.N` with the largest N up to MOST_GAMES; None without any."""
    found = {}
    for key, value in values.items():
        start, _, games = key.rpartition(".")
        if start == name and games.isdecimal() and int(games) <= MOST_GAMES:
            found[int(games)] = value
    return found[max(found)] if found else None
