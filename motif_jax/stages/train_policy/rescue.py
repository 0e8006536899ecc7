"""Saves the learner's state when another host is lost, although the update in progress never ends.

An update reuses the memory of the state before it, and fails or hangs if a host dies meanwhile. So each host keeps a
copy of every state until the next update has succeeded: on one device, or sharded among its devices as the state is.
This costs the memory of two states, and the time of one copy per update.

Host 0 writes the copy as a checkpoint. If host 0 is lost, another host writes `policy/rescued.npz`, because orbax needs
host 0, which may only be suspended and still hold the checkpoints. The next start turns the file into a checkpoint.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.devices.host_arrays import nested, spread_copy
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.learner.update import LearnerState
from motif_jax.stages.train_policy.section import RESCUED
from motif_jax.structs import UserError
from motif_jax.system.files import read_arrays, write_whole

FACTS, SOURCES = "facts", "sources"


class Rescue:
    """The learner's states after the last two updates. Each host has a `Rescue`, since any other may be lost."""

    def __init__(self, write: Callable[[LearnerState, dict[str, Any], dict[str, Any]], None]):
        """`write` gets a state, the arrays of reward sources that learn, and the progress."""
        self._write = write
        self._copies: collections.deque[tuple[LearnerState, Any, dict[str, Any]]] = collections.deque(maxlen=2)

    def add(self, state: LearnerState, learning: dict[str, Any], done: dict[str, Any]) -> None:
        """Keeps copies of the state after an update, of `RewardSources.learning` (copies already) and of the progress.

        The update may still be running. The one before it must have succeeded: its metrics were read.
        """
        self._copies.append((spread_copy(state), learning, dict(done)))

    def save(self) -> str:
        """Writes the newest state that was computed; may run in any thread. Returns a message for the user."""
        for state, learning, done in reversed(list(self._copies)):
            if not all(leaf.is_ready() for leaf in jax.tree.leaves((state, learning)) if hasattr(leaf, "is_ready")):
                continue
            try:
                arrays, of_sources = jax.tree.map(np.asarray, (state, learning))
            except (RuntimeError, ValueError):  # the update failed, as its collectives do when a host is gone
                continue
            self._write(arrays, of_sources, done)
            return f"all {done['env_steps']:,} steps are saved"
        return "nothing was learnt since it started"


def write_rescued(
    folder: Path, state: Any, learning: dict[str, Any], done: dict[str, Any], sources: dict[str, Any]
) -> None:
    """Writes the file that `read_rescued` reads.

    Args:
      folder: the policy's.
      state: a tree of arrays, as `start.whole_state` makes it.
      learning: `RewardSources.learning` at that time.
      done: the progress.
      sources: `RewardSources.facts`.
    """
    if not (folder / "config.json").exists():
        raise UserError(f"this host cannot see the files of host 0 in {str(folder)!r}")
    by_path = leaves_by_path(state) | {(SOURCES, *path): leaf for path, leaf in leaves_by_path(learning).items()}
    arrays: dict[str, Any] = {"/".join(path): np.asarray(leaf) for path, leaf in by_path.items()}
    facts = {"progress": done, "sources": sources}
    arrays[FACTS] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    write_whole(folder / RESCUED, lambda file: np.savez(file, **arrays))


def read_rescued(
    folder: Path,
) -> tuple[dict[tuple[str, ...], np.ndarray], dict[str, Any], dict[str, Any]] | None:
    """Reads a rescued state; None if there is not one.

    Returns:
      The learner's arrays by their paths, those of reward sources as nested dictionaries, and facts as in a checkpoint.
    """
    file = folder / RESCUED
    if not file.exists():
        return None
    try:
        arrays = read_arrays(file)
        facts = json.loads(arrays.pop(FACTS).tobytes())
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{str(file)!r} is damaged ({error}): move it away to go on from the last checkpoint (--workdir)"
        ) from error
    found = {tuple(name.split("/")): array for name, array in arrays.items()}
    of_learner = {path: array for path, array in found.items() if path[0] != SOURCES}
    of_sources = {path[1:]: array for path, array in found.items() if path[0] == SOURCES}
    return of_learner, {SOURCES: nested(of_sources)}, facts
