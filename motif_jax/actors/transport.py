"""The connection of the pool to one worker: a process or, for debugging, an object in this process.

Each process has a temporary folder, which the next pool removes if the parent was killed. All users share the temporary
directory, so a folder is removed only if it is this user's and has a marker file that this program wrote. The parent
holds a lock on the marker while it runs, which is visible across containers.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from motif_jax.actors.layout import MESSAGE_FORMAT, Layout, Op
from motif_jax.actors.shared_arrays import SharedArrays
from motif_jax.actors.worker import Worker
from motif_jax.envs.own_code import reported
from motif_jax.envs.seeding import SeedStream
from motif_jax.files import NoLocks, try_lock
from motif_jax.structs import UserCodeError, UserError

Message = tuple[int, int, int]  # Op, group, slot
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerError(RuntimeError):
    """A Python exception inside a worker, with the worker's own traceback."""


def describe(layout: Layout, shared: SharedArrays, index: int) -> str:
    """Names a worker, with the seed and the current episodes, which are needed to replay its games."""
    episodes = [str(number - 1) for number in shared["playing"][index].ravel().tolist() if number]
    stream = SeedStream(layout.stream).name.lower()
    return f"actor worker {index} (seed {layout.seed}, stream {stream}, episodes {', '.join(episodes) or 'none'})"


MARKER = ".motif_jax-worker-folder"
PURPOSE = b"This temporary folder of an actor worker of motif_jax is removed when its parent process has ended.\n"


class WorkerFolder:
    """A folder for the temporary files of one worker."""

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
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with open(folder / MARKER, "r+b") as marker:
                if marker.read() == PURPOSE and try_lock(marker):
                    shutil.rmtree(folder, ignore_errors=True)


class ProcessWorker:
    """A worker in a process, which imports only its own modules."""

    def __init__(self, layout: Layout, shared: SharedArrays, index: int):
        self._who = functools.partial(describe, layout, shared, index)
        self._closed = False
        worker_in, self._out = os.pipe()
        self.messages, worker_out = os.pipe()  # the pool polls `messages`
        # NLE keeps a folder per game in the temporary directory, which a killed worker cannot remove.
        self._folder = WorkerFolder()
        environment = os.environ | ONE_THREAD | {"TMPDIR": str(self._folder.path)}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        # Workers do not need the parent's threads, locks or __main__, so they are neither forked nor "spawned".
        # Their own process group protects them from the parent's Ctrl-C.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "motif_jax.actors.worker"],
            stdin=subprocess.PIPE,
            pass_fds=(worker_in, worker_out, shared.file),
            env=environment,
            process_group=0,
        )
        os.close(worker_in)
        os.close(worker_out)
        start = {
            "index": index,
            "parent": os.getpid(),
            "messages_in": worker_in,
            "messages_out": worker_out,
            "shared_file": shared.file,
            "layout": layout._asdict(),
        }
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, which the pool will notice
            self.process.stdin.write(json.dumps(start).encode())
            self.process.stdin.close()

    def send(self, messages: list[Message]) -> None:
        """Sends messages to the worker, in a single system call, which dominates the cost."""
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
                report = json.loads(data)
                refusal = report["refusal"]  # an error of the operating system, if any: see `system/errors.py`
                cause = OSError(*refusal) if refusal else None
                sentence = report.get("sentence")
                if sentence and not refusal:
                    if details := report["traceback"]:  # the error is in the user's own code
                        raise UserCodeError(f"{sentence}; {self._who()}", details)
                    raise UserError(sentence)
                raise WorkerError(f"{self._who()} failed:\n{report['traceback']}") from cause
            messages.append(message)
        return messages

    def kill(self) -> tuple[int, list[Message]]:
        """Kills the process; returns its exit status (negative: a signal) and its last messages."""
        self.process.kill()
        status = self.process.wait()
        last: list[Message] = []
        while (messages := self.receive()) is not None:
            last += messages
        self.close(time.monotonic())
        return status, last

    def close(self, deadline: float) -> None:
        """Lets the process end by itself until `deadline`, then kills it."""
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


class InlineWorker:
    """A worker in this process: for debuggers, determinism and simpler tracebacks."""

    def __init__(self, layout: Layout, shared: SharedArrays, index: int):
        self._inbox: collections.deque[Message] = collections.deque()
        self._outbox: list[Message] = []
        self._who = functools.partial(describe, layout, shared, index)
        self._env = layout.env
        with reported(layout.env):
            self._worker = Worker(layout, shared, index, lambda op, group, slot: self._outbox.append((op, group, slot)))

    def send(self, messages: list[Message]) -> None:
        """Queues messages until the pool polls."""
        self._inbox += messages

    def receive(self) -> list[Message]:
        """Handles one waiting message and returns the resulting messages."""
        if self._inbox and not self._outbox:
            try:
                with reported(self._env, f"; {self._who()}"):
                    self._worker.handle(*self._inbox.popleft())
            except Exception as error:
                error.add_note(f"(in {self._who()})")
                raise
        messages, self._outbox = self._outbox, []
        return messages

    def close(self, deadline: float) -> None:
        with reported(self._env):
            self._worker.close()
