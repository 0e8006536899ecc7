"""Parses flags that name policies: `runs/score`, `runs/score@40000000:0.3`, `runs/score@all:2,runs/oracle`.

A path is a workdir, its policy directory, a directory of checkpoints, or a release (releases.py). `@` is followed by
`last` (the default), the number of a checkpoint, or `all` for all kept checkpoints, with equal shares. `:` is followed
by the share. JAX is imported only when a directory of checkpoints is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from motif_jax.devices.releases import find_release, released_step
from motif_jax.envs.world import World
from motif_jax.structs import UserError, naming

if TYPE_CHECKING:
    from motif_jax.policies.model import Model
    from motif_jax.rewards.sources import RewardSources

LAST, ALL = "last", "all"


class PlayerChoice(NamedTuple):
    """One policy that a flag names, before any file is read."""

    path: str
    which: str  # LAST, ALL, or a number
    share: float


class Checkpoint(NamedTuple):
    """One checkpoint of a policy, and its share of the games."""

    path: str  # absolute path of the directory of checkpoints
    step: int
    share: float  # all shares sum to 1


def parse_mixture(text: str, flag: str) -> list[PlayerChoice]:
    """Parses `PATH[@WHICH][:SHARE],...` into choices; the shares are not normalised."""
    return [_parse(part.strip(), flag) for part in text.split(",")]


def parse_one(text: str, flag: str) -> PlayerChoice:
    """Parses `PATH[@WHICH]`, which must name exactly one policy."""
    choice = _choice(text.strip(), 1.0, flag)
    if choice.which == ALL or "," in text:
        raise UserError(f"name one policy, not {text!r} ({flag})")
    return choice


def _parse(text: str, flag: str) -> PlayerChoice:
    name, share = text.rsplit(":", 1) if ":" in text else (text, "1")
    try:
        number = float(share)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UserError(f"the share of {name!r} must be a positive number, not {share!r} ({flag})")
    return _choice(name, number, flag)


def _choice(text: str, share: float, flag: str) -> PlayerChoice:
    path, at, which = text.rpartition("@")
    if not at or "/" in which:  # names of directories may contain an @
        path, which = text, LAST
    if not path:
        raise UserError(f"a policy is named by its path, but {text!r} has no path ({flag})")
    if which not in (LAST, ALL) and not which.isdecimal():
        raise UserError(f"unknown checkpoint {which!r} of {path!r} ({flag}): choose last, all or a number")
    return PlayerChoice(path, which, share)


def find(choices: list[PlayerChoice], flag: str) -> list[Checkpoint]:
    """Finds the checkpoints that the choices name, without reading them."""
    total = sum(choice.share for choice in choices)
    checkpoints = []
    for choice in choices:
        directory, steps = list_steps(choice.path, flag)
        if choice.which == LAST:
            steps = steps[-1:]
        elif choice.which != ALL:
            if int(choice.which) not in steps:
                has = ", ".join(map(str, steps))
                raise UserError(f"{choice.path!r} has no checkpoint {choice.which!r} ({flag}); it has {has}")
            steps = [int(choice.which)]
        checkpoints += [Checkpoint(str(directory), step, choice.share / total / len(steps)) for step in steps]
    return checkpoints


def list_steps(path: str, flag: str) -> tuple[Path, list[int]]:
    """Finds the directory of checkpoints for a path, and their numbers, ascending; a release has one checkpoint."""
    with naming(flag):
        if release := find_release(Path(path)):
            return release.resolve(), [released_step(release)]
        from motif_jax.devices.checkpoints import find_checkpoints, reading

        directory = find_checkpoints(Path(path), "policy").resolve()
        with reading(directory) as checkpoints:
            return directory, checkpoints.steps()


def load(
    path: str, step: int, world: World, flag: str, trusted: Iterable[str] = ()
) -> tuple[Model, dict[str, Any], RewardSources]:
    """Reads a policy with `model.read_policy`; raises UserError if it cannot play in this world."""
    import jax

    from motif_jax.policies.model import read_policy

    with naming(flag):
        model, metadata, sources = read_policy(path, str(step), trusted, world.action_names)
    if reason := world.plays(metadata):
        raise UserError(f"the policy in {path!r} {reason} ({flag}, --config.env)")
    params, frozen = jax.device_put((model.params, model.frozen))
    return model._replace(params=params, frozen=frozen), metadata, sources
