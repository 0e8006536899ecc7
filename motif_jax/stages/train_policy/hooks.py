"""What watches a training: the probes here, and what plugins add by name (`Plugin.training_hooks`).

A hook sees every batch and the policy after it, on the host that writes the files. It has figures for the rows of
metrics, blocks for the report, and files of its own in the policy's folder; it changes nothing that is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.actors.acting import Arrays, RolloutBatch
from motif_jax.envs.world import World, to_row
from motif_jax.files import json_line, keep_lines, read_json, read_lines, write_json
from motif_jax.names import TRAINING_HOOKS, import_named
from motif_jax.networks.kinds import PROMPT
from motif_jax.pages.blocks import Block, Box, Heading, Paragraph
from motif_jax.pages.charts import COLOURS, Curves, Point
from motif_jax.policies.checkpoints import TrainingProgress
from motif_jax.policies.model import Model, probabilities
from motif_jax.rewards.source import RewardSources
from motif_jax.stages.train_policy import TrainConfig

Figures = Mapping[str, float]
Rows = Sequence[Mapping[str, Any]]


class Watched(NamedTuple):
    """What a hook begins with: a training that starts or goes on."""

    config: TrainConfig
    world: World
    sources: RewardSources
    model: Model  # that acts; its frozen parameters are on the devices
    params: Any  # of the policy now
    done: TrainingProgress
    folder: Path  # the policy's


class Words(NamedTuple):
    """What the report's first screen and the policy's section say about the training of an agent."""

    title: str  # An agent that ...
    rewarded: str  # after "The agent": was rewarded by ..., and
    settings: Sequence[str] = ()  # what its rewards are


class TrainingHook:
    """Watches a training. This one does nothing; others have those of these methods that they need."""

    @classmethod
    def begin(cls, watched: Watched) -> TrainingHook:
        """The hook for this training, before its games begin; the plain one if there is nothing to do.

        Removes rows of its own files after `watched.done.env_steps`.
        """
        return TrainingHook()

    def keep(self, arrays: Arrays, rewards: Mapping[str, np.ndarray]) -> Any:
        """Copies what `after_update` needs of the rollouts of a batch, while they are placed on the devices.

        It is called by the thread that places them. `arrays`: [T, T + 1 or 1, B, ...] each; `rewards`: of each source,
        by its name, without coefficient. [T, B] each
        """

    def after_update(self, done: TrainingProgress, params: Any, batch: RolloutBatch, kept: Any) -> None:
        """Takes a batch and the policy that learnt from it, once the reward sources have, too.

        `done`: with this batch; `batch.arrays`: a `policies.learning.PlacedBatch`; `kept`: the result of `keep`.
        """

    def figures(self) -> Figures:
        """Figures for a row of metrics, since the last call."""
        return {}

    @staticmethod
    def page(folder: Path, rows: Rows) -> list[Block]:
        """Its blocks of the report, from the policy's folder and the rows of metrics; [] without results."""
        return []

    @staticmethod
    def words(folder: Path, rows: Rows) -> Words | None:
        """What the report says in place of the names of the reward sources; None: these."""
        return None


class Hooks:
    """All hooks of a training, by name."""

    def __init__(self, watched: Watched, writes: bool):
        """`writes`: whether this host writes files; others have no hooks."""
        kinds = {name: import_named(path) for name, path in TRAINING_HOOKS.items()} if writes else {}
        self._hooks: dict[str, TrainingHook] = {name: kind.begin(watched) for name, kind in kinds.items()}

    def keep(self, arrays: Arrays, rewards: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {name: hook.keep(arrays, rewards) for name, hook in self._hooks.items()}

    def after_update(self, done: TrainingProgress, params: Any, batch: RolloutBatch) -> None:
        for name, hook in self._hooks.items():
            hook.after_update(done, params, batch, batch.arrays.kept[name])

    def figures(self) -> dict[str, float]:
        return {name: figure for hook in self._hooks.values() for name, figure in hook.figures().items()}


def blocks_of_hooks(folder: Path, rows: Rows) -> list[Block]:
    """The blocks of all hooks for the report."""
    return [block for path in TRAINING_HOOKS.values() for block in import_named(path).page(folder, rows)]


def words_of_hooks(folder: Path, rows: Rows) -> Words | None:
    """The words of the first hook that has some."""
    return next(filter(None, (import_named(path).words(folder, rows) for path in TRAINING_HOOKS.values())), None)


# ---- probes: the policy's outputs for some fixed prompts

PROBES, PROMPTS = "probes.jsonl", "probes.json"  # in the policy's directory: probabilities by update; the prompts
LEAST = 0.02  # actions with lower probabilities throughout are left out of the page


class Probes(TrainingHook):
    """Records the outputs for the world's `probes` every `policy.probe_every` updates, if the network reads prompts.

    A row of `policy/probes.jsonl`, with probabilities in the order of actions:
    {"env_steps": 1280, "updates": 1, "probabilities": {"it is ahead": [0.1, ...], ...}, "values": {...}}
    """

    def __init__(self, watched: Watched, probes: dict[str, str]):
        self._model, self._probes, self._folder = watched.model, probes, watched.folder
        self._every = watched.config.policy.probe_every
        width = max(len(prompt.encode()) for prompt in probes.values())
        self._seen = self._model.encode({PROMPT: np.stack([to_row(prompt, width) for prompt in probes.values()])})
        self._prepare, self._step = jax.jit(self._model.prepare), jax.jit(self._model.step)

    @classmethod
    def begin(cls, watched: Watched) -> TrainingHook:
        world, folder, done = watched.world, watched.folder, watched.done
        probes = dict(getattr(world, "probes", {}))
        if not (probes and PROMPT in watched.model.reads and watched.config.policy.probe_every):
            return TrainingHook()
        keep_lines(folder / PROBES, "env_steps", done.env_steps or -1)  # a new run writes the row of step 0 again
        write_json(folder / PROMPTS, {"actions": list(world.action_names), "prompts": probes})
        hook = cls(watched, probes)
        if not done.updates:
            hook.ask(done, watched.params)
        return hook

    def after_update(self, done: TrainingProgress, params: Any, batch: RolloutBatch, kept: Any) -> None:
        if not done.updates % self._every:
            self.ask(done, params)

    def ask(self, done: TrainingProgress, params: Any) -> None:
        """Writes a row."""
        model, weights = self._model, (params, self._model.frozen)
        first, core = np.ones(len(self._probes), bool), np.zeros((len(self._probes), model.core_size), np.float32)
        logits, values, _ = self._step(*weights, self._seen, first, core, self._prepare(*weights))
        odds = probabilities(np.asarray(logits, np.float64))
        row: dict[str, Any] = {"env_steps": done.env_steps, "updates": done.updates}
        row |= {"probabilities": dict(zip(self._probes, odds.round(5).tolist(), strict=True))}
        row |= {"values": dict(zip(self._probes, np.asarray(values, np.float64).round(4).tolist(), strict=True))}
        with open(self._folder / PROBES, "a") as file:
            file.write(json_line(row))

    @staticmethod
    def page(folder: Path, rows: Rows) -> list[Block]:
        """A chart for each fixed prompt, with a line for each action."""
        if not (folder / PROBES).exists():
            return []
        names = read_json(folder / PROMPTS)["actions"]
        odds_of: dict[str, dict[str, list[Point]]] = {}  # by prompt and action: (steps, probability of the action)
        for row in read_lines(folder / PROBES):
            for prompt, odds in row["probabilities"].items():
                lines = odds_of.setdefault(prompt, {name: [] for name in names})
                for name, odd in zip(names, odds, strict=True):
                    lines[name].append((row["env_steps"], odd))
        colours = dict(zip(names, COLOURS * len(names), strict=False))
        charts = []
        for prompt, lines in odds_of.items():
            shown = {name: points for name, points in lines.items() if max(odd for _, odd in points) >= LEAST}
            charts.append(Curves(shown, "steps", 0.0, 1.0, title=prompt, colours=colours))
        return [
            Heading("Fixed prompts"),
            Paragraph("Probabilities of the actions after each of these prompts.", "soft"),
            Box(charts, "charts"),
        ]
