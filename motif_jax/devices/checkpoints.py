"""Checkpoints by orbax: a tree of arrays with metadata in JSON; each checkpoint is complete or does not exist.

    <directory>/<step>/state/    arrays
    <directory>/<step>/facts/    JSON: the metadata that are needed to use the arrays

Orbax writes a checkpoint under a temporary name and renames it, so a killed run still has the previous one. A
checkpoint that cannot be read, or whose checksum is wrong (orbax does not check it), is renamed with a warning, and the
previous one is used. Of several hosts, only one opens the checkpoints.

Orbax's own policies of preservation are not used: they rank by a file without a checksum, their milestones are
multiples of a period and not the first step after one, and they keep the surplus of a killed run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from motif_jax.console import clean
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.mesh import from_first_host, host_copy
from motif_jax.devices.parameters import keys_of, sum_of_arrays
from motif_jax.devices.releases import checksum_of, is_release, read_release
from motif_jax.files import LAYOUT_KEY, check_layout
from motif_jax.structs import UserError
from motif_jax.system.errors import is_about_the_file

Content = TypeVar("Content")
LOSS, MILESTONE = "loss", "milestone"  # keys of the metadata: the ranking, and checkpoints that are never deleted
EMPTY = "empty_arrays"  # key of the metadata: path, shape and dtype of each array without elements
LAYOUT = 1  # version of checkpoints; raise it with every change by which older ones would be misread
METADATA, SUMS = "facts", "sha256"  # on disk: the metadata, and checksums of the arrays and of the metadata


class Checkpoints:
    """The checkpoints of one training run: the last `keep`, the one with the lowest loss, and milestones."""

    def __init__(self, directory: Path, keep: int = 2, milestone_every: int = 0):
        """Opens or creates the directory; the first checkpoint after every `milestone_every` steps is never deleted."""
        self.directory, self._keep, self._milestone_every = directory.absolute(), keep, milestone_every
        self.directory.mkdir(parents=True, exist_ok=True)
        for logger in ("absl", "asyncio"):  # asyncio logs errors of orbax's tasks
            logging.getLogger(logger).addFilter(_is_not_from_orbax)
        options = ocp.CheckpointManagerOptions(create=False)
        if jax.process_count() > 1:
            me = jax.process_index()
            options.multiprocessing_options = ocp.options.MultiprocessingOptions(me, {me}, f"host{me}")
        try:
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        except Exception as error:  # orbax reads all metadata, and may raise anything
            where = repr(str(self.directory))
            raise UserError(f"the checkpoints in {where} cannot be opened ({_reason(error)}): move it away") from error
        self._rankings: dict[int, dict[str, Any]] = {}  # loss and milestone, by step
        self._may_delete = False  # a process that only reads deletes no surplus checkpoints

    def save(
        self, step: int, state: Any, metadata: dict[str, Any], loss: float | None = None, milestone: bool = False
    ) -> None:
        """Starts to write a checkpoint; the next save, or `close`, waits for it and deletes surplus ones."""
        # Copies on the host, because the next step may reuse the memory of `state`, and one device must be able to read
        # a checkpoint of four. Orbax refuses empty arrays: `_read` puts them back from the metadata.
        arrays = host_copy(state)
        copy = jax.tree.map(lambda array: array if array.size else None, arrays)
        every, before = self._milestone_every, max(self.steps(), default=0)
        milestone |= bool(every) and step // every > before // every
        added: dict[str, Any] = {MILESTONE: milestone, LAYOUT_KEY: LAYOUT}
        if loss is not None:
            added[LOSS] = float(loss)
        leaves = jax.tree_util.tree_flatten_with_path(arrays)[0]
        if empty := [[keys_of(path), leaf.shape, leaf.dtype.name] for path, leaf in leaves if not leaf.size]:
            added[EMPTY] = empty
        metadata = json.loads(json.dumps(metadata | added))  # also a copy, because orbax writes it in the background
        checked = {METADATA: metadata, SUMS: {"state": sum_of_arrays(copy), "facts": checksum_of(metadata)}}
        items = ocp.args.Composite(state=ocp.args.StandardSave(copy), facts=ocp.args.JsonSave(checked))
        if not self.directory.is_dir():  # orbax would make it again, without the lost checkpoints
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.directory))
        self._prune()
        self._may_delete = True
        saved = self._manager.save(step, args=items)
        assert saved, f"checkpoint {step} was not written to {self.directory}"
        self._rankings[step] = added

    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def best(self) -> int | None:
        """The last step with the lowest loss; None if the checkpoints do not have losses."""
        ranked = [step for step in self.steps() if LOSS in self._ranks(step)]
        return min(ranked, key=lambda step: (self._ranks(step)[LOSS], -step), default=None)

    def _read_metadata(self, step: int) -> tuple[dict[str, Any], str]:
        """Metadata, and the checksum of the arrays; raises ValueError if damaged, UserError for another layout."""
        items = ocp.args.Composite(facts=ocp.args.JsonRestore())
        saved = dict(self._manager.restore(step, args=items)["facts"])
        if saved.keys() != {METADATA, SUMS} or saved[SUMS]["facts"] != checksum_of(saved[METADATA]):
            raise ValueError("its metadata are damaged")
        check_layout(saved[METADATA], self.directory, LAYOUT)
        return saved[METADATA], saved[SUMS]["state"]

    def _read(self, step: int) -> tuple[int, Any, dict[str, Any]]:
        metadata, checksum = self._read_metadata(step)  # first, because they name the layout
        items = ocp.args.Composite(state=ocp.args.StandardRestore())
        arrays = self._manager.restore(step, args=items)["state"]
        if sum_of_arrays(arrays) != checksum:
            raise ValueError("its arrays are damaged")
        empty = {tuple(path): (shape, dtype) for path, shape, dtype in metadata.get(EMPTY, [])}

        def put_back(path: Any, array: Any) -> Any:
            if array is not None or (name := keys_of(path)) not in empty:
                return None if array is None else np.asarray(array)
            shape, dtype = empty[name]
            if 0 not in shape:
                raise ValueError("its metadata are damaged")
            return np.zeros(shape, dtype)

        return step, jax.tree_util.tree_map_with_path(put_back, arrays, is_leaf=lambda leaf: leaf is None), metadata

    def latest(self) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, arrays in dictionaries and metadata of the last readable checkpoint; None without checkpoints.

        Later, unreadable checkpoints are renamed, as training will write these steps again. Raises UserError, and does
        not rename, if all are unreadable: the user decides whether to start again.
        """
        for step in reversed(self.steps()):
            if checkpoint := self._try(step, self._read):
                for damaged in [later for later in self.steps() if later > step]:
                    aside = self.directory / f"unreadable-{damaged}"
                    while aside.exists():
                        aside = aside.with_name(f"{aside.name}+")
                    (self.directory / str(damaged)).rename(aside)
                    self._manager.reload()
                self._may_delete = True  # a killed run may have left surplus checkpoints
                return checkpoint
        if self.steps():
            raise UserError(
                f"no checkpoint in {str(self.directory)!r} can be read, see the warnings; to start again, move the "
                "directory away (--workdir)"
            )
        return None

    def readable(self, which: str) -> tuple[int, Any, dict[str, Any]]:
        """Step, arrays and metadata of the "last" or "best" readable checkpoint, or of the named step."""
        steps = self.steps()
        if which == "best":
            order = sorted(steps, key=lambda step: (self._ranks(step).get(LOSS, float("inf")), -step))
        elif which == "last":
            order = steps[::-1]
        else:
            order = [step for step in steps if str(step) == which]
        for step in order:
            if checkpoint := self._try(step, self._read):
                return checkpoint
        has = ", ".join(map(str, steps)) or "none"
        raise UserError(f"{str(self.directory)!r} has no readable checkpoint {which!r}; it has {has}")

    def close(self) -> None:
        """Waits for the checkpoint that is being written, and deletes surplus ones."""
        self._prune()
        self._manager.close()

    def _prune(self) -> None:
        if not self._may_delete:
            return
        self._manager.wait_until_finished()
        steps = self.steps()
        kept = {*steps[-self._keep :], self.best()} | {step for step in steps if self._ranks(step).get(MILESTONE)}
        for step in steps:
            if step not in kept:
                self._manager.delete(step)

    def _ranks(self, step: int) -> dict[str, Any]:
        if step not in self._rankings:
            metadata, _ = self._try(step, self._read_metadata) or ({LOSS: float("inf")}, "")
            self._rankings[step] = {key: metadata[key] for key in (LOSS, MILESTONE) if key in metadata}
        return self._rankings[step]

    def _try(self, step: int, read: Callable[[int], Content]) -> Content | None:
        try:
            return read(step)
        except Exception as error:  # orbax and tensorstore may raise anything, even `Exception` itself
            if isinstance(error, UserError) or not is_about_the_file(error):
                raise
            words = f"checkpoint {step} in {str(self.directory)!r} cannot be read: {_reason(error)}"
            warnings.warn(words, stacklevel=3)
            return None


def reading(directory: Path) -> contextlib.closing[Checkpoints]:
    """Opens checkpoints for a `with`, which closes them."""
    return contextlib.closing(Checkpoints(directory))


def latest_of_all(checkpoints: Any, folder: Path, hosts: Hosts) -> tuple[int, Any, dict[str, Any]] | None:
    """Step, arrays and metadata of the last checkpoint.

    The first host, which alone has `checkpoints`, finds it; the others read the same one in `folder`.
    """
    latest: tuple[int, Any, dict[str, Any]] | None = checkpoints.latest() if checkpoints else None
    hosts.agree()  # the first host worked alone until here, and may have failed
    step = int(from_first_host(np.int64(latest[0] if latest else -1)))
    if checkpoints or step < 0:
        return latest
    with reading(folder) as others:
        return others.readable(str(step))


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """A logging filter that drops orbax's tracebacks from threads and tasks: the next save or `close` raises them."""
    if record.name == "asyncio":
        message = record.getMessage()
        return not ("was never retrieved" in message and "orbax" in message)  # orbax is in the message as a path
    return not (record.exc_info and "/orbax/" in record.pathname)


def _reason(error: Exception) -> str:
    return clean((str(error).splitlines() or [""])[0], 200)


def read_saved(directory: Path, kind: str, which: str) -> tuple[int, Any, dict[str, Any]]:
    """Step, arrays and metadata from the directory of `find_saved`; `which` is "last", "best" or a step."""
    if is_release(directory):
        return read_release(directory, kind, which)
    with reading(directory) as checkpoints:
        return checkpoints.readable(which)
