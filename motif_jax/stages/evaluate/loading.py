"""Loads policies that write for an evaluation, and reports differences between training's games and these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.protocols import is_variation
from motif_jax.envs.settings import make_world
from motif_jax.offline.recipes import Recipe
from motif_jax.policies.decoding import Decoding, describe_unused
from motif_jax.policies.values import read_values
from motif_jax.policies.writing import ValueWriter
from motif_jax.stages.evaluate.contenders import Contender
from motif_jax.structs import UserError


class LoadedWriter(NamedTuple):
    """A policy that writes."""

    writer: ValueWriter
    checksum: str  # of its parameters


# By path and step, all policies loaded so far; only the last one stays in memory, the others are None.
Writers = dict[tuple[str, int], LoadedWriter | None]


def load_writer(config: ConfigDict, workdir: Path, contender: Contender, flag: str, loaded: Writers) -> LoadedWriter:
    """The policy that writes of a contender, from `loaded` or from its checkpoint.

    Raises UserError if it was trained in another world, or if its decoding needs values that it has not learnt.
    """
    assert contender.decoding
    key = contender.path, contender.step
    found = loaded.get(key)
    if not found:
        reported = key in loaded
        loaded.update(dict.fromkeys(loaded))
        folder = contender.folder(workdir)
        try:
            model, facts = read_values(folder, str(contender.step))
        except UserError as error:
            raise UserError(f"{error} ({flag})") from error
        if reason := make_world(config.env).plays(facts):
            raise UserError(f"the policy in {str(folder)!r} {reason} ({flag}, --config.env)")
        if not reported:
            name = contender.name.removesuffix(f"-{contender.decoding.name}")
            report_other_games(name, facts["config"]["env"], config)
        found = loaded[key] = LoadedWriter(ValueWriter(model), model.checksum())
    found.writer.check(contender.decoding)
    return found


def check_writers(
    config: ConfigDict, workdir: Path, contenders: Iterable[tuple[Contender, str]], loaded: Writers
) -> None:
    """Loads every policy that writes, so that errors come before the first game; reports values without effect.

    Each contender comes with the flag that names it.
    """
    decodings: dict[tuple[str, Recipe], list[Decoding]] = {}
    for contender, flag in contenders:
        if contender.decoding:
            recipe = load_writer(config, workdir, contender, flag, loaded).writer.model.recipe
            decodings.setdefault((contender.path, recipe), []).append(contender.decoding)
    for (_, recipe), several in decodings.items():
        for line in describe_unused(recipe, several):
            print_line(f"evaluate: {line}")


def report_other_games(name: str, trained: dict[str, Any], config: ConfigDict) -> None:
    """Prints a line if a policy plays other games than it was trained on; this may be intended.

    In variations it is, and other differences were reported with the unvaried games.
    """
    if is_variation(config.evaluate.protocol):
        return
    now, before = leaves_by_path(config.env.to_dict()), leaves_by_path(trained)
    keys = [key for key in sorted(now) if before.get(key, now[key]) != now[key]]
    other = [f"{'.'.join(key)} = {before[key]!r}, not {now[key]!r}" for key in keys]
    if other:
        print_line(f"evaluate: {name} was trained with {'; '.join(other)} (--config.env)")
