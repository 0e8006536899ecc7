"""The players of an evaluation: scripted players and policies, as the config names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.envs.protocols import TASK, suffix
from motif_jax.envs.settings import make_world
from motif_jax.envs.world import World, is_text
from motif_jax.policies.choice import LAST, Choice, list_steps, parse_one
from motif_jax.policies.decoding import Decoding, decodings_of
from motif_jax.stages.evaluate.summary import read_json
from motif_jax.structs import UserError
from motif_jax.system.file_names import short_name
from motif_jax.system.files import record

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
        parse_one(f".{policy}" if policy.startswith("@") else policy, flag)


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
    choice = _parse(workdir, policy, flag)
    directory, steps = list_steps(choice.path, flag)
    step = _step_of(choice, steps, steps[-1], flag)
    name, path = _place(workdir, directory, "policy")
    name = short_name(f"{name}-{step}{'-greedy' if greedy else ''}{suffix(protocol)}")
    return Contender(name, path, step, greedy)


def find_writers(workdir: Path, policy: str, decodings: list[Decoding], flag: str) -> list[Contender]:
    """A policy that writes, decoded in each of these ways; `policy` is the value of `flag`, "" for the workdir's own.

    Checkpoints of `--stage=train_values` are looked for, but not read.
    """
    from motif_jax.policies.values import list_values  # loads JAX

    choice = _parse(workdir, policy, flag)
    try:
        directory, steps = list_values(Path(choice.path))
    except UserError as error:
        raise UserError(f"{error}: run --stage=train_values first ({flag})") from error
    if not steps:
        raise UserError(f"there is no whole checkpoint in {str(directory)!r} ({flag})")
    step = _step_of(choice, steps, _chosen(directory, steps), flag)
    name, path = _place(workdir, directory, "values")
    return [Contender(short_name(f"{name}-{step}-{one.name}"), path, step, False, one) for one in decodings]


def _parse(workdir: Path, policy: str, flag: str) -> Choice:
    """What the value of a flag names: "" and @STEP are checkpoints of this workdir."""
    if not policy:
        return Choice(str(workdir), LAST, 1.0)
    return parse_one(f"{workdir}{policy}" if policy.startswith("@") else policy, flag)


def _step_of(choice: Choice, steps: list[int], last: int, flag: str) -> int:
    """The number of the checkpoint, among `steps`; `last` if none is named."""
    step = last if choice.which == LAST else int(choice.which)
    if step not in steps:
        has = ", ".join(map(str, steps))
        raise UserError(f"{choice.path!r} has no checkpoint {choice.which!r} ({flag}); it has {has}")
    return step


def _place(workdir: Path, directory: Path, stage: str) -> tuple[str, str]:
    """Name and `Contender.path` of a policy that lies in a directory of checkpoints; `stage` is their folder."""
    if directory == (workdir / stage / "checkpoints").resolve():
        return stage, "."
    home = directory.parent if directory.name == "checkpoints" else directory
    return (home.parent if home.name == stage else home).name, str(directory)


def _chosen(directory: Path, steps: list[int]) -> int:
    """The checkpoint that training has chosen by its return; the last one if it has chosen none."""
    chosen = (read_json(directory.parent / "summary.json") or {}).get("checkpoint")
    return chosen if chosen in steps else steps[-1]
