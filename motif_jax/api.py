"""What people use in notebooks: `from motif_jax import load_reward`.

reward = load_reward("runs/score")
reward(["You kill the newt!", "It's a wall."])      # raw and normalised values
reward.top(20)                                      # the captions of the data that it likes most
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, decode, encode
from motif_jax.checkpoint import reading
from motif_jax.rewards.statistics import RewardStatistics
from motif_jax.structs import UserError


class Values(NamedTuple):
    """Rewards of some moments."""

    raw: np.ndarray  # [B] as the network gives them
    normalised: np.ndarray  # [B] mean 0 and variance 1 over the training pairs


class Liked(NamedTuple):
    """A caption of the training data."""

    text: str
    value: float  # normalised
    times: int  # how often training showed it


class Reward:
    """A trained reward. Call it with captions; `statistics` tells what is usual over the data."""

    def __init__(self, options: Mapping[str, Any], params: Any, statistics: RewardStatistics, captions: np.ndarray,
                 counts: np.ndarray, facts: Mapping[str, Any]):  # fmt: skip
        """What `load_reward` has found."""
        from motif_jax.stages.reward_setup import make_model, make_value

        self.options, self.params, self.statistics, self.facts = dict(options), params, statistics, dict(facts)
        self.captions, self.counts = captions, counts  # of the training data. [U, 256] uint8, [U] int32
        self._value = make_value(make_model(options, 0)[0])

    @property
    def reads_only_messages(self) -> bool:
        """Whether a caption is enough to give a value."""
        return not (self.options["blstats"] or self.options["crop"] or self.options["glyphs"])

    def __call__(self, captions: Iterable[str] | np.ndarray, **more: np.ndarray) -> Values:
        """Values of messages.

        Args:
          captions: texts, or messages as NLE gives them. [B, 256] uint8
          more: what else the reward reads: `vector` [B, 27] (scaled), `blstats` [B, 27], `glyphs` [B, 21, 79].

        Returns:
          Raw and normalised rewards.
        """
        if isinstance(captions, str):
            raise TypeError("give a list of captions, not one text")
        if isinstance(captions, np.ndarray) and captions.dtype == np.uint8:
            messages = captions
        else:
            messages = np.array([encode(text) for text in captions], np.uint8).reshape(-1, WIDTH)
        if not len(messages):
            return Values(np.empty(0, np.float32), np.empty(0, np.float32))
        raw = np.asarray(self._value(self.params, messages, np.arange(len(messages)), more))
        return Values(raw, self.statistics.normalise(raw).astype(np.float32))

    def table(self) -> Values:
        """Values of `captions`, those of the training data. [U]"""
        import jax.numpy as jnp

        from motif_jax.stages.reward_setup import value_captions

        raw = value_captions(self._value, self.params, jnp.asarray(self.captions))
        return Values(raw, self.statistics.normalise(raw).astype(np.float32))

    def top(self, number: int = 20) -> list[Liked]:
        """The captions of the training data that are worth most, best first."""
        return self._ranked(number, -1)

    def bottom(self, number: int = 20) -> list[Liked]:
        """Those that are worth least, worst first."""
        return self._ranked(number, 1)

    def _ranked(self, number: int, sign: int) -> list[Liked]:
        values = self.table().normalised
        seen = np.flatnonzero(self.counts > 0)
        order = seen[np.argsort(sign * values[seen], kind="stable")][:number]
        return [Liked(decode(self.captions[at]), float(values[at]), int(self.counts[at])) for at in order]


def load_reward(path: str | Path, which: str = "last") -> Reward:
    """A reward that `--stage=train_reward` has made; nothing else is needed.

    Args:
      path: a workdir, its `reward` directory, or a directory of checkpoints.
      which: "last", "best" (least validation loss) or the number of an epoch.
    """
    return load_checkpoint(find_checkpoints(Path(path)), which)


def export_reward(reward: Reward, file: str | Path) -> None:
    """Writes a reward that reads messages alone as a PyTorch checkpoint of the published system."""
    from motif_jax.rewards.torch_format import write_checkpoint

    if reward.options["message"] != "lt_cnn" or not reward.reads_only_messages:
        raise UserError("only a reward of the default network, which reads messages alone, has a place in that format")
    arrays = {key: np.asarray(array) for key, array in leaves_by_path(reward.params).items()}
    write_checkpoint(Path(file), arrays, reward.statistics.mean, reward.statistics.variance)


def find_checkpoints(path: Path) -> Path:
    """The directory of checkpoints that is meant."""
    for directory in (path / "reward" / "checkpoints", path / "checkpoints", path):
        if directory.is_dir() and any(name.name.isdigit() for name in directory.iterdir()):
            return directory
    raise UserError(f"there is no reward in {str(path)!r}: no directory with checkpoints")


def load_checkpoint(directory: Path, which: str = "last") -> Reward:
    """The reward in a directory of checkpoints."""
    from motif_jax.stages.reward_setup import make_model

    with reading(directory, "path") as checkpoints:
        steps = checkpoints.steps()
        step = checkpoints.best() if which == "best" else steps[-1] if which == "last" else int(which)
        if step not in steps:
            raise UserError(f"{str(directory)!r} has no epoch {which}; it has {', '.join(map(str, steps))}")
        facts = checkpoints.facts(step)
        whole = checkpoints.raw(step)
    _, like = make_model(facts["model"], 0)
    params = rebuild(like, leaves_by_path(whole["train"]["params"]), directory)
    statistics = RewardStatistics(**facts["statistics"])
    return Reward(facts["model"], params, statistics, whole["captions"], whole["counts"], facts)


def leaves_by_path(tree: Any) -> dict[tuple[str, ...], Any]:
    """Arrays by the names on the way to them."""
    import jax

    return {_key(path): array for path, array in jax.tree_util.tree_flatten_with_path(tree)[0]}


def rebuild(like: Any, by_path: dict[tuple[str, ...], Any], directory: Path) -> Any:
    """Parameters in the form of the model, checked one by one."""
    import jax

    wanted, form = jax.tree_util.tree_flatten_with_path(like)
    by_path = dict(by_path)
    leaves: list[Any] = []
    for path, leaf in wanted:
        array = by_path.pop(_key(path), None)
        if array is None or np.shape(array) != leaf.shape:
            has = "nothing" if array is None else str(np.shape(array))
            raise UserError(
                f"the checkpoint in {str(directory)!r} is of another architecture: {'.'.join(_key(path))} is {has}, "
                f"where {leaf.shape} is due"
            )
        leaves.append(np.asarray(array))
    if by_path:
        more = ".".join(sorted(by_path)[0])
        raise UserError(f"the checkpoint in {str(directory)!r} is of another architecture: it also has {more}")
    return jax.tree_util.tree_unflatten(form, leaves)


def _key(path: Sequence[Any]) -> tuple[str, ...]:
    names = (str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part)))) for part in path)
    return tuple(name for name in names if name != "value")
