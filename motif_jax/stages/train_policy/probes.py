"""What the policy thinks of a few fixed prompts, update by update: `policy/probes.jsonl`.

{"env_steps": 1280, "updates": 1, "probabilities": {"it is ahead": [0.1, ...], ...}, "values": {...}}

Probabilities are in the order of the world's actions. The prompts are those of the world's `probes`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.envs.world import World, to_row
from motif_jax.networks.kinds import PROMPT
from motif_jax.policies.model import Model, probabilities
from motif_jax.system.files import json_line, write_json
from motif_jax.system.locks import open_in_place
from motif_jax.system.metrics import PROBES, PROMPTS, drop_rows_after


class Probes:
    """Asks the policy about the prompts of a world, if it reads prompts and the world has some; a context manager."""

    def __init__(self, model: Model, world: World, folder: Path, every: int, env_steps: int):
        """Opens the file.

        Args:
          model: the network; of its parameters those that are not trained.
          world: with `probes`, names of moments and their prompts; others are asked about nothing.
          folder: of the policy.
          every: updates from one row to the next; 0: no rows.
          env_steps: from which training goes on; later rows are removed.
        """
        probes = dict(getattr(world, "probes", {})) if PROMPT in model.reads and every else {}
        self._names, self._every, self._file = tuple(probes), every, None
        if not probes:
            return
        width = max(len(prompt.encode()) for prompt in probes.values())
        self._seen = model.encode({PROMPT: np.stack([to_row(prompt, width) for prompt in probes.values()])})
        self._first, self._core = np.ones(len(probes), bool), np.zeros((len(probes), model.core_size), np.float32)
        self._prepare, self._step, self._frozen = jax.jit(model.prepare), jax.jit(model.step), model.frozen
        drop_rows_after(folder / PROBES, env_steps or -1)  # a run that begins writes the row of step 0 again
        write_json(folder / PROMPTS, {"actions": list(world.action_names), "prompts": probes})
        self._file = open_in_place(folder / PROBES, "a")

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def ask(self, params: Any, done: dict[str, Any]) -> None:
        """Writes a row, if one is due after this update."""
        if self._file is None or done["updates"] % self._every:
            return
        weights = params, self._frozen
        logits, values, _ = self._step(*weights, self._seen, self._first, self._core, self._prepare(*weights))
        odds = probabilities(np.asarray(logits, np.float64))
        row = {name: done[name] for name in ("env_steps", "updates")}
        row |= {"probabilities": dict(zip(self._names, odds.round(5).tolist(), strict=True))}
        row |= {"values": dict(zip(self._names, np.asarray(values, np.float64).round(4).tolist(), strict=True))}
        self._file.write(json_line(row))
        self._file.flush()
