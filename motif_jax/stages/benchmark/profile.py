"""Takes a trace of some updates, with games and actors at work, and says what the device did meanwhile.

The trace is written where train_policy writes its own, below `profile/`, for XProf or https://ui.perfetto.dev. The rows
come from the same file: the share of the time in which the device computed anything, the share of each program in that,
and the operations that took longest.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.stages.benchmark.policy import WARMUP_BATCHES, Training
from motif_jax.stages.benchmark.rows import Row, say
from motif_jax.stages.train_policy.record import Trace
from motif_jax.structs import UserError

UPDATES = 5
LONGEST = 8  # operations
SCOPES = ("encoder", "core", "heads", "rewards", "vtrace", "loss", "optimizer")  # `jax.named_scope` in the programs
UNKNOWN = "copies and others"  # what belongs to no program


class Operation(NamedTuple):
    """One run of an operation on the device; times in microseconds."""

    program: str
    name: str
    start: float
    length: float
    thread: tuple[int, int]  # operations of a thread may lie within each other
    scope: str = ""  # the part of the program, of SCOPES; "" where the trace does not say


class Summary(NamedTuple):
    """What a device did during a trace."""

    busy: float  # % of the time from the first to the last operation
    programs: dict[str, float]  # % of the time in which it was busy, largest first
    operations: list[tuple[str, str, float]]  # program, operation, % likewise; the longest ones
    scopes: dict[str, float]  # % of the time of the operations whose scope is known, largest first


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    network = config.benchmark.networks[0]
    training = Training(config, network, rewarded=True)
    training.act(0.0)  # which compiles the policy
    folder = workdir / "profile"
    section = ConfigDict({"start_step": WARMUP_BATCHES + 1, "num_steps": UPDATES})
    training.run(0.0, updates=UPDATES + 3, trace=Trace(section, folder))
    file = max(folder.rglob("perfetto_trace.json.gz"), key=lambda file: file.stat().st_mtime, default=None)
    found = file and summarise(read_trace(file))
    if not found:
        raise UserError(f"the profiler has recorded no operation of the device in {str(folder)!r}")
    rows = [Row("profile.device_busy", round(found.busy, 1), "% of the time", {"updates": UPDATES, "file": str(file)})]
    rows += [
        Row(f"profile.program.{name}", round(share, 1), "% of the work", {}) for name, share in found.programs.items()
    ]
    rows += [
        Row(f"profile.scope.{name}", round(share, 1), "% of what is known", {}) for name, share in found.scopes.items()
    ]
    for place, (program, name, share) in enumerate(found.operations, 1):
        rows.append(Row(f"profile.operation.{place}", round(share, 1), "% of the work", {"name": name, "in": program}))
    return [say(row) for row in rows]


def read_trace(file: Path) -> list[Operation]:
    """The operations of the device in a trace that JAX has written for Perfetto."""
    with gzip.open(file, "rt") as source:
        events = json.load(source)["traceEvents"]
    names = {(event["pid"], event.get("tid"), event["name"]): event["args"].get("name", "")
             for event in events if event.get("ph") == "M" and "args" in event}  # fmt: skip

    def is_device(event: dict[str, Any]) -> bool:
        """On GPUs what runs in a stream; on CPUs what says that it is an operation of a program."""
        process = names.get((event["pid"], None, "process_name"), "")
        if process.startswith("/device:"):
            return names.get((event["pid"], event["tid"], "thread_name"), "").startswith("Stream")
        return not on_device and "hlo_module" in event.get("args", {})

    on_device = any(name.startswith("/device:") for (_, _, kind), name in names.items() if kind == "process_name")
    found = []
    for event in events:
        if event.get("ph") == "X" and is_device(event):
            about = event.get("args", {})
            program = about.get("hlo_module", UNKNOWN).removeprefix("jit_").partition("(")[0]
            name = about.get("hlo_op", event["name"])
            thread = event["pid"], event["tid"]
            start, length = float(event["ts"]), float(event.get("dur", 0.0))
            path = f"{about.get('tf_op', '')}/{about.get('name', '')}".replace("(", "/").replace(")", "/").split("/")
            scope = next((part for part in path if part in SCOPES), "")
            found.append(Operation(program, name, start, length, thread, scope))
    return found


def summarise(operations: Iterable[Operation]) -> Summary | None:
    """Adds up a trace; None if it has no operations."""
    found = sorted(operations, key=lambda one: (one.start, -one.length))
    if not found:
        return None
    busy, until = 0.0, found[0].start
    for one in found:
        end = one.start + one.length
        busy += max(end - max(one.start, until), 0.0)
        until = max(until, end)
    programs: dict[str, float] = {}
    by_operation: dict[tuple[str, str], float] = {}
    scopes: dict[str, float] = {}
    for one, own in own_time(found):
        programs[one.program] = programs.get(one.program, 0.0) + own
        by_operation[one.program, one.name] = by_operation.get((one.program, one.name), 0.0) + own
        if one.scope:
            scopes[one.scope] = scopes.get(one.scope, 0.0) + own
    work, known = max(sum(programs.values()), 1e-9), max(sum(scopes.values()), 1e-9)
    return Summary(
        100 * busy / max(until - found[0].start, 1e-9),
        {name: 100 * own / work for name, own in largest(programs)},
        [(program, name, 100 * own / work) for (program, name), own in largest(by_operation)[:LONGEST]],
        {name: 100 * own / known for name, own in largest(scopes)},
    )


def own_time(operations: list[Operation]) -> Iterator[tuple[Operation, float]]:
    """Each operation with its time without that of the operations inside it; they are sorted by their start."""
    inside: dict[int, float] = {}
    open_ones: dict[tuple[int, int], list[int]] = {}
    for number, one in enumerate(operations):
        stack = open_ones.setdefault(one.thread, [])
        while stack and operations[stack[-1]].start + operations[stack[-1]].length <= one.start:
            stack.pop()
        if stack:
            inside[stack[-1]] = inside.get(stack[-1], 0.0) + one.length
        stack.append(number)
    for number, one in enumerate(operations):
        yield one, max(one.length - inside.get(number, 0.0), 0.0)


def largest(shares: dict[Any, float]) -> list[tuple[Any, float]]:
    """The items of a dictionary, by their values, largest first."""
    return sorted(shares.items(), key=lambda item: -item[1])
