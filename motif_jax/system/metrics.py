"""Timers, metrics files and progress output of a run. Does not import JAX."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from motif_jax.console import clean, print_line
from motif_jax.structs import UserError
from motif_jax.system.files import is_cut_off, json_line, parse_json, write_lines
from motif_jax.system.foreign import lines_of
from motif_jax.system.locks import open_in_place

# Files of a policy's directory: its probabilities for fixed prompts, by update; and these prompts.
PROBES, PROMPTS = "probes.jsonl", "probes.json"


class Timers:
    """Seconds spent per named activity: `with timers("policy"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str) -> Timer:
        return Timer(self.seconds, name)


class Timer:
    """Adds the time of its block to an activity. A class, because a generator takes four times as long."""

    __slots__ = ("_name", "_seconds", "_start")

    def __init__(self, seconds: dict[str, float], name: str):
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.perf_counter() - self._start


def resident_mib() -> float:
    """Memory of this process in MiB, with shared pages counted in part (PSS); 0 if unknown."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


class Writers:
    """Writes rows of metrics over `env_steps` as JSON lines, and optionally to TensorBoard and Weights & Biases."""

    def __init__(self, directory: Path, tensorboard: bool, wandb: str, config: dict[str, Any], start: int):
        """Opens the files, and appends to those of earlier runs.

        `wandb`: a Weights & Biases project, or "". `start`: `env_steps` from which training resumes; TensorBoard hides
        later points of earlier runs.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._lines = open_in_place(directory / "metrics.jsonl", "a")
        self._curves = None
        if tensorboard:
            # SummaryWriter would write in a thread of its own, whose errors would go unnoticed.
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog

            (directory / "tensorboard").mkdir(exist_ok=True)
            self._curves = EventsWriter(str(directory / "tensorboard/events"))
            if start:
                self._curves.write_event(Event(step=start + 1, session_log=SessionLog(status=SessionLog.START)))
        self._wandb = None
        if wandb:
            try:
                import wandb as library
            except ImportError:
                raise UserError("wandb is not installed: pip install wandb (--config.policy.wandb)") from None
            name = str(directory.absolute().parent)
            self._wandb = library.init(project=wandb, id=hashlib.sha256(name.encode()).hexdigest()[:16],
                                       name=name, resume="allow", config=config)  # fmt: skip

    def write(self, env_steps: int, row: dict[str, Any]) -> None:
        """Writes one row of metrics by name; curves get only its numbers, without NaN."""
        self._lines.write(json_line({"env_steps": env_steps} | row))
        self._lines.flush()
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float) and value == value}
        if self._curves:
            from tensorboardX.proto.event_pb2 import Event
            from tensorboardX.summary import scalar

            for name, value in numbers.items():
                self._curves.write_event(Event(step=env_steps, wall_time=time.time(), summary=scalar(name, value)))
            self._curves.flush()
        if self._wandb:
            self._wandb.log(numbers | {"env_steps": env_steps})

    def close(self) -> None:
        self._lines.close()
        if self._curves:
            self._curves.close()
        if self._wandb:
            self._wandb.finish()


class Progress:
    """Shows progress, rate and time left on standard error: a bar on a terminal, otherwise a line every 15 seconds."""

    LINE_EVERY_S = 15.0

    def __init__(self, description: str, total: int, unit: str, done: int = 0):
        self._terminal = sys.stderr.isatty()
        self._description, self._total, self._unit = description, total, unit
        self._start, self._first, self._done, self._said = time.monotonic(), done, done, 0.0
        self._bar = tqdm(
            desc=clean(description),
            total=total,
            initial=done,
            unit=f" {unit}",
            unit_scale=total >= 1000,
            dynamic_ncols=True,
            disable=not self._terminal,
        )

    def expect(self, total: int) -> None:
        self._total = self._bar.total = total

    def update(self, done: int, **notes: str) -> None:
        """Shows the total number of finished units, with `notes`."""
        self._bar.set_postfix({clean(name): clean(value) for name, value in notes.items()}, refresh=False)
        self._bar.update(done - self._done)
        self._done = done
        if not self._terminal and time.monotonic() - self._said > self.LINE_EVERY_S:
            self._said = time.monotonic()
            rate = (done - self._first) / max(self._said - self._start, 1e-9)
            # An update has many steps, so the last one may exceed the total.
            left = f"{max(self._total - done, 0) / rate:,.0f} s left" if rate > 0 else "starting"
            speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
            words = "".join(f", {name} {value}" for name, value in notes.items())
            print_line(
                f"{self._description}: {done:,} of {self._total:,} {self._unit}, {speed}/s, {left}{words}",
                file=sys.stderr,
            )

    def close(self) -> None:
        self._bar.close()


def drop_rows_after(file: Path, last: int, key: str = "env_steps", stage: str = "train_policy") -> None:
    """Removes rows later than the checkpoint from which training resumes, and a truncated last row.

    Training does not depend on these rows. If some are damaged, the others are kept, and the file is set aside. `last`:
    the largest value of `key`, the counter of the rows, to keep. `stage`: for the message.
    """
    rows, damaged = [], 0
    try:
        for line in lines_of(file) if file.exists() else ():
            try:
                row = parse_json(line)
                if row[key] <= last:
                    rows.append(row)
            except (ValueError, KeyError, TypeError):
                damaged += not is_cut_off(line)
    except ValueError as error:
        raise UserError(f"{str(file)!r} is damaged: {error}; move it away (--workdir)") from error
    if damaged:
        aside = file.with_name(f"damaged-{file.name}")
        while aside.exists():
            aside = aside.with_name(f"damaged-{aside.name}")
        file.rename(aside)
        print_line(f"{stage}: {damaged:,} damaged lines of {str(file)!r} are left out; the file is now {str(aside)!r}")
    write_lines(file, rows)
