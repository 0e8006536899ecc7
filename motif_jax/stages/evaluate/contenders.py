"""The players of an evaluation: scripted players and policies, as the config names them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from motif_jax.envs.protocols import TASK, suffix
from motif_jax.envs.settings import make_world
from motif_jax.envs.world import World
from motif_jax.policies.choice import LAST, list_steps, parse_one
from motif_jax.structs import UserError

FLAG, BESIDE_FLAG = "--config.evaluate.policy", "--config.evaluate.beside"


class Contender(NamedTuple):
    """A player that is evaluated: a scripted player, or one checkpoint of a policy."""

    name: str  # of its directory
    path: str  # "" for a scripted player, "." for this workdir's policy, or the checkpoints of another, absolute
    step: int  # which checkpoint
    greedy: bool


def check_policy(policy: str, world: World, flag: str) -> None:
    """Raises UserError if `policy` cannot name exactly one player of this world."""
    if policy not in (*world.players, ""):
        parse_one(f".{policy}" if policy.startswith("@") else policy, flag)


def find_contenders(config: ConfigDict, workdir: Path) -> list[tuple[Contender, str]]:
    """All players of the evaluation, each once, with the flag that names it; `config.evaluate.policy` comes last."""
    section, world = config.evaluate, make_world(config.env)
    named = [(other, BESIDE_FLAG) for other in section.beside.split(",") if other] + [(section.policy, FLAG)]
    found: dict[Contender, str] = {}
    for policy, flag in named:
        contender = find_contender(workdir, policy, world, section.greedy, flag, section.protocol)
        found.pop(contender, None)
        found[contender] = flag
    by_name: dict[str, Contender] = {}
    for contender, flag in found.items():
        if by_name.setdefault(contender.name, contender) != contender:
            raise UserError(f"two policies would be called {contender.name!r}: evaluate them one by one ({flag})")
    return list(found.items())


def find_contender(
    workdir: Path, policy: str, world: World, greedy: bool, flag: str, protocol: str = TASK
) -> Contender:
    """The player that `policy`, the value of `flag`, names; checkpoints are looked for, but not read."""
    if policy in world.players:
        return Contender(f"{policy}{suffix(protocol)}", "", 0, False)
    choice = parse_one(f"{workdir}{policy}" if policy.startswith("@") else policy or str(workdir), flag)
    directory, steps = list_steps(choice.path, flag)
    step = steps[-1] if choice.which == LAST else int(choice.which)
    if step not in steps:
        has = ", ".join(map(str, steps))
        raise UserError(f"{choice.path!r} has no checkpoint {choice.which!r} ({flag}); it has {has}")
    own = directory == (workdir / "policy" / "checkpoints").resolve()
    home = directory.parent if directory.name == "checkpoints" else directory
    home = home.parent if home.name == "policy" else home
    name = f"{'policy' if own else home.name}-{step}{'-greedy' if greedy else ''}"
    return Contender(f"{name}{suffix(protocol)}", "." if own else str(directory), step, greedy)
