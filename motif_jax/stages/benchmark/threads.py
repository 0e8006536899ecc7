"""What the threads of this process do with their time: computing, waiting in a named place, or waiting for a turn.

A thread that neither computes nor waits where a timer says so waits for a processor, which the kernel counts, or for
Python's global lock, which is what remains.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROCESS = "process"  # all threads together, those of libraries included


class Spent(NamedTuple):
    """Seconds of one thread, from its start or between two moments."""

    elapsed: float
    computing: float
    queued: float  # for a processor; 0 where the kernel does not count it

    def since(self, earlier: Spent) -> Spent:
        """What was spent from an earlier moment on."""
        return Spent(*(now - before for now, before in zip(self, earlier, strict=True)))

    def unnamed(self, waits: Mapping[str, float]) -> float:
        """Seconds that are neither computing nor in the queue nor among the named `waits`: Python's global lock."""
        return max(self.elapsed - self.computing - self.queued - sum(waits.values()), 0.0)


def look(names: Mapping[str, str]) -> dict[str, Spent]:
    """What living threads have spent until now, and all threads of the process together (PROCESS).

    Args:
      names: what the result calls a thread, by the thread's own name.
    """
    now, found = time.perf_counter(), {}
    for thread in threading.enumerate():
        if thread.name in names and thread.ident is not None:
            computing = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            found[names[thread.name]] = Spent(now, computing, _queued(thread.native_id))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found[PROCESS] = Spent(now, usage.ru_utime + usage.ru_stime, 0.0)
    return found


def computed_by(processes: Iterable[int]) -> float:
    """Seconds of the processor that other processes have spent until now; 0 where the system does not say."""
    ticks = 0
    for number in processes:
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])  # in user and in system mode
    return ticks / os.sysconf("SC_CLK_TCK")


def _queued(number: int | None) -> float:
    try:
        return int(Path(f"/proc/self/task/{number}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
