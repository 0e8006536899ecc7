"""Checkpoints by orbax: a tree of arrays, and facts about it that people can read; whole or not there.

    <directory>/<step>/state/    arrays
    <directory>/<step>/facts/    JSON: whatever is needed to use the arrays alone

A checkpoint is written beside and renamed by orbax, so a kill leaves the one before. What cannot be read is left aside,
with a warning, in favour of the one before it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from motif_jax.structs import UserError

UNREADABLE = (OSError, ValueError, KeyError)


class Checkpoints:
    """The checkpoints of one training run: the last `keep`, and the one with the least `loss`."""

    def __init__(self, directory: Path, keep: int = 1):
        """Opens or makes the directory."""
        policy = [policies.LatestN(n=keep), policies.BestN(get_metric_fn=_loss, reverse=True, n=1)]
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies.AnyPreservationPolicy(policy), best_fn=_loss, best_mode="min"
        )
        self.directory = directory.absolute()
        self._manager = ocp.CheckpointManager(self.directory, options=options)

    def save(self, step: int, state: Any, facts: dict[str, Any], loss: float) -> None:
        """Starts to write; the next save, or `close`, waits for it."""
        # Copies on the host, because the next step may be given the memory of `state`, and because a checkpoint of four
        # devices must be readable on one. All that is saved is the same on every device.
        copy = jax.tree.map(np.array, state)
        items = ocp.args.Composite(state=ocp.args.StandardSave(copy), facts=ocp.args.JsonSave(facts))
        self._manager.save(step, args=items, metrics={"loss": loss})

    def steps(self) -> list[int]:
        """Those that are there, ascending."""
        return sorted(self._manager.all_steps())

    def best(self) -> int | None:
        """The one with the least loss."""
        return self._manager.best_step()

    def facts(self, step: int) -> dict[str, Any]:
        """What was said beside the arrays."""
        items = ocp.args.Composite(facts=ocp.args.JsonRestore())
        return dict(self._manager.restore(step, args=items)["facts"])

    def state(self, step: int, like: Any) -> Any:
        """The arrays, as `like` has them: shapes, types and devices."""
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        return self._manager.restore(step, args=items)["state"]

    def raw(self, step: int) -> Any:
        """The arrays as they were saved, on the host, in dictionaries."""
        items = ocp.args.Composite(state=ocp.args.StandardRestore())
        return jax.tree.map(np.asarray, self._manager.restore(step, args=items)["state"])

    def latest(self, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, state and facts of the last checkpoint that can be read; None where there is none."""
        for step in reversed(self.steps()):
            try:
                return step, self.state(step, like), self.facts(step)
            except UNREADABLE as error:
                reason = str(error).splitlines()[0][:200]
                warnings.warn(f"checkpoint {step} in {str(self.directory)!r} cannot be read: {reason}", stacklevel=2)
        return None

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()


@contextlib.contextmanager
def reading(directory: Path, flag: str) -> Iterator[Checkpoints]:
    """Opens checkpoints that must be there."""
    if not directory.is_dir() or not any(directory.iterdir()):
        raise UserError(f"there are no checkpoints in {str(directory)!r} ({flag})")
    checkpoints = Checkpoints(directory)
    try:
        yield checkpoints
    finally:
        checkpoints.close()


def _loss(metrics: Any) -> float:
    return float(metrics["loss"])
