"""Returns of the episodes of a training, by reward source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.rewards.registry import LEARNT, return_name
from motif_jax.structs import EndStatus, EpisodeInfo

Ended = tuple[EpisodeInfo, dict[str, float]]  # an episode, and its return by reward source


class Returns:
    """Returns of whole episodes by reward source, summed over their rollouts."""

    def __init__(self) -> None:
        # rewards by source and steps, summed over each group's open episodes. [sources + 1, E]
        self._open: dict[Any, np.ndarray] = {}

    def take(self, batch: Any) -> list[Ended]:
        """The episodes that ended in a batch, except those that began with random actions (`warmup_steps`).

        `batch`: `actors.acting.RolloutBatch`, whose arrays are a `policies.learning.PlacedBatch`.
        """
        placed, ended_episodes = batch.arrays, []
        for (group, columns), episodes in zip(batch.columns(), batch.episodes, strict=True):
            arrays = [*placed.rewards.values(), placed.played]
            counted = np.stack([array[:, columns] for array in arrays], 1)  # [T, sources + 1, E]
            sums = np.cumsum(counted, 0, dtype=np.float64)
            carried = np.where(placed.first[columns], 0.0, self._open.get(group, np.zeros_like(sums[0])))
            for ended in episodes:
                *values, seen = carried[:, ended.game] + sums[ended.step, :, ended.game]
                if seen >= ended.info.steps:
                    ended_episodes.append((ended.info, dict(zip(placed.rewards, map(float, values), strict=True))))
                carried[:, ended.game] = -sums[ended.step, :, ended.game]
            self._open[group] = carried + sums[-1]
        return ended_episodes


def summarise_recent(ended: list[Ended], figures: Sequence[str]) -> dict[str, Any]:
    """Means over episodes by name, including the world's figures; None without episodes."""
    infos = [info for info, _ in ended]
    values: dict[str, list[Any]] = {"return": [info.episode_return for info in infos]}
    for name in {LEARNT: None} | {name: None for _, returns in ended for name in returns}:  # in their order
        values[return_name(name)] = [returns.get(name, 0.0) for _, returns in ended]
    named = [info.named(figures) for info in infos]
    values |= {name: [one[name] for one in named] for name in ("steps", *figures, "success")}
    for status in (EndStatus.DEATH, EndStatus.ENDED, EndStatus.ABORTED):
        values[f"share_{status.name.lower()}"] = [info.end_status == status for info in infos]
    return {"count": len(infos)} | {name: float(np.mean(own)) if own else None for name, own in values.items()}
