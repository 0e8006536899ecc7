"""The players of an evaluation: scripted players and policies, as the config names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.config_table import record
from motif_jax.envs.protocols import TASK, suffix
from motif_jax.envs.settings import make_world
from motif_jax.envs.world import World, is_text
from motif_jax.policies.choice import LAST, Choice, list_steps, parse_one
from motif_jax.policies.decoding import Decoding, decodings_of
from motif_jax.stages.evaluate.summary import read_json
from motif_jax.structs import UserError

FLAG, BESIDE_FLAG = "--config.evaluate.policy", "--config.evaluate.beside"


class Contender(NamedTuple):
    """A player that is evaluated: a scripted player, or one checkpoint of a policy."""

    name: str  # of its directory
    path: str  # "" for a scripted player, "." for this workdir's policy, or the checkpoints of another, absolute
    step: int  # which checkpoint
    greedy: bool
    decoding: Decoding | None = None  # of a policy that writes

    def facts(self) -> dict[str, Any]:
        """What the record of the player says of it, as JSON has it."""
        found = self._asdict()
        del found["decoding"]
        return found | ({"decoding": record(self.decoding._asdict())} if self.decoding else {})

    def folder(self, workdir: Path) -> Path:
        """The directory of its checkpoints."""
        own = workdir / ("values" if self.decoding else "policy") / "checkpoints"
        return own if self.path == "." else Path(self.path)


def check_policy(policy: str, world: World, flag: str) -> None:
    """Raises UserError if `policy` cannot name exactly one player of this world."""
    if policy not in (*world.players, ""):
        parse_one(policy, flag)


def find_contenders(config: ConfigDict, workdir: Path) -> list[tuple[Contender, str]]:
    """All players of the evaluation, each once, with the flag that names it; `config.evaluate.policy` comes last."""
    section, world = config.evaluate, make_world(config.env)
    named = [(other, BESIDE_FLAG) for other in section.beside.split(",") if other] + [(section.policy, FLAG)]
    found: dict[Contender, str] = {}
    for policy, flag in named:
        for contender in find_all(config, workdir, policy, world, flag):
            found.pop(contender, None)
            found[contender] = flag
    by_name: dict[str, Contender] = {}
    for contender, flag in found.items():
        if by_name.setdefault(contender.name, contender) != contender:
            raise UserError(f"two policies would be called {contender.name!r}: evaluate them one by one ({flag})")
    return list(found.items())


def find_all(config: ConfigDict, workdir: Path, policy: str, world: World, flag: str) -> list[Contender]:
    """What one value of a flag names: one player, or a policy that writes, decoded in several ways."""
    section = config.evaluate
    if is_text(world.action) and policy not in world.players:
        return find_writers(workdir, policy, decodings_of(config.decoding), flag)
    return [find_contender(workdir, policy, world, section.greedy, flag, section.protocol)]


def find_contender(
    workdir: Path, policy: str, world: World, greedy: bool, flag: str, protocol: str = TASK
) -> Contender:
    """The player that `policy`, the value of `flag`, names; checkpoints are looked for, but not read."""
    if policy in world.players:
        return Contender(f"{policy}{suffix(protocol)}", "", 0, False)
    choice = parse_one(policy or str(workdir), flag)
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


def find_writers(workdir: Path, policy: str, decodings: list[Decoding], flag: str) -> list[Contender]:
    """A policy that writes, decoded in each of these ways; `policy` is the value of `flag`, "" for the workdir's own.

    Checkpoints of `--stage=train_values` are looked for, but not read.
    """
    from motif_jax.policies.values import list_values  # loads JAX

    choice = parse_one(policy, flag) if policy else Choice(str(workdir), LAST, 1.0)
    try:
        directory, steps = list_values(Path(choice.path))
    except UserError as error:
        raise UserError(f"{error}: run --stage=train_values first ({flag})") from error
    if not steps:
        raise UserError(f"there is no whole checkpoint in {str(directory)!r} ({flag})")
    step = _chosen(directory, steps) if choice.which == LAST else int(choice.which)
    if step not in steps:
        has = ", ".join(map(str, steps))
        raise UserError(f"{choice.path!r} has no checkpoint {choice.which!r} ({flag}); it has {has}")
    own = directory == (workdir / "values" / "checkpoints").resolve()
    home = directory.parent if directory.name == "checkpoints" else directory
    home = home.parent if home.name == "values" else home
    name = "values" if own else home.name
    return [
        Contender(f"{name}-{step}-{one.name}", "." if own else str(directory), step, False, one) for one in decodings
    ]


def _chosen(directory: Path, steps: list[int]) -> int:
    """The checkpoint that training has chosen by its return; the last one if it has chosen none."""
    chosen = (read_json(directory.parent / "summary.json") or {}).get("checkpoint")
    return chosen if chosen in steps else steps[-1]
