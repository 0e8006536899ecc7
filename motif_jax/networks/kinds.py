"""Kinds of observations, which choose their encoders (policy.py). Without JAX, for checks.

    text      characters, padded with zeros.  [N] uint8
    vector    numbers of any size.  [...] of any numeric type
    category  values below `categories`.  [] or [N] integers
    grid      cells with a value below `categories` per channel.  [H, W] or [H, W, C] integers
    planes    the same, with the channels first.  [C, H, W] integers
    image     intensities.  [H, W] or [H, W, C] uint8

A spec names its kind, or `kind_of` infers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.envs.own_code import load_class
from motif_jax.envs.world import World
from motif_jax.names import PROMPT_NETWORKS, find
from motif_jax.structs import IMAGE_CHANNELS, MOST_CATEGORIES, ArraySpec, Need, UserError

FLAG, WORLD = "--config.policy.network", "--config.env.world"
GENERAL = "general"  # a network for any observations (policy.py)
FILM = "film"  # the same, but texts modulate the encoders of grids (`policy.FilmEncoder`)
LANGUAGE = "language"  # a language model (policies/language_policy.py)
BEHAVIOUR = "behaviour"  # the observation that what acts adds: which of several the network plays (`Acting.behaviours`)
PROMPT = "prompt"  # the observation of PROMPT_NETWORKS: UTF-8 padded with zeros


class BySpecs(NamedTuple):
    """A network that is made from specs. Users' encoders read the same."""

    encoder: str  # module:Class
    needs: frozenset[str] = frozenset()  # kinds of observations


class Preset(NamedTuple):
    """A network that reads these observations alone."""

    encoder: str  # module:Class
    core_size: int  # numbers of memory per game
    reads: tuple[str, ...]


BY_SPECS = {
    GENERAL: BySpecs("motif_jax.networks.policy:GeneralEncoder"),
    FILM: BySpecs("motif_jax.networks.policy:FilmEncoder", frozenset({"grid", "text"})),
}
NETHACK = ("crop", "blstats", "message")
FIXED = {  # all others, but those that read prompts
    "reference": Preset("motif_jax.networks.policy:ReferenceEncoder", 512, NETHACK),
    "small": Preset("motif_jax.networks.policy:SmallEncoder", 128, NETHACK),
}
RANKS = {"text": (1,), "vector": range(9), "category": (0, 1), "grid": (2, 3), "planes": (3,), "image": (2, 3)}
WHOLE, BYTE, ANY = "iu", "B", "iufb"  # NumPy's `dtype.kind`; BYTE stands for uint8
TYPES = {"text": BYTE, "vector": ANY, "category": WHOLE, "grid": WHOLE, "planes": WHOLE, "image": BYTE}


class PromptNetwork:
    """A network without memory that reads prompts and scores the names of actions; `find_prompt_network` finds it."""

    overlaps = False  # whether it acts for a group of games while others play, where games and learner take turns
    keeps_untrained = False  # whether the policy before the first update is saved

    def check(self, config: Any) -> None:
        """Raises UserError for values of the config that cannot work."""

    def needs(self, section: Any) -> list[Need]:
        """The files of others that a new network of `config.policy` reads."""
        return []

    def start(self, config: Any, world: World, workdir: Path) -> tuple[dict[str, Any], Any]:
        """The spec of a new network, as checkpoints hold it, and its `Model` with the initial parameters."""
        raise NotImplementedError

    def fields(self, spec: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
        """The fields of `policies.model.Model`, from a spec; if `seed` is None, parameters are shapes only."""
        raise NotImplementedError

    def scores_names(self, spec: Mapping[str, Any]) -> bool:
        """Whether it chooses actions by their names, so they can be renamed."""
        return True

    def language_model(self, spec: Mapping[str, Any], params: Any, frozen: Any) -> Any:
        """The language model in it; None for a network without one."""


def find_prompt_network(name: str) -> PromptNetwork | None:
    """The network that reads prompts; None if the name is of another network."""
    network = find(PROMPT_NETWORKS, name)
    return network() if network else None


def kind_of(name: str, spec: ArraySpec) -> str:
    """Returns the kind of an observation; raises UserError if it does not have an encoder."""
    dtype, rank = np.dtype(spec.dtype), len(spec.shape)
    if spec.kind:
        numbers, count = TYPES.get(spec.kind, ""), spec.categories
        fits = dtype == np.uint8 if numbers == BYTE else dtype.kind in numbers
        if numbers == WHOLE:  # categories, whose number is known or that of bytes
            fits &= 1 < count <= MOST_CATEGORIES or (not count and dtype == np.uint8)
        if fits and rank in RANKS[spec.kind] and all(spec.shape):
            return spec.kind
    elif dtype == np.uint8 and rank == 1 and spec.shape[0]:
        return "text"
    elif dtype == np.uint8 and rank == 3 and spec.shape[2] <= IMAGE_CHANNELS and all(spec.shape):
        return "image"
    elif dtype.kind in ANY and rank <= 1 and all(spec.shape):
        return "vector"
    kind = f", as {spec.kind}" * bool(spec.kind) + f" of {spec.categories:,} values" * bool(spec.categories)
    raise UserError(
        f"no encoder reads the observation {name!r}, which has the shape {spec.shape} and the type {spec.dtype}{kind}: "
        f"set its kind ({', '.join(RANKS)}; networks/kinds.py), or remove it from `reads` of the world "
        f"({FLAG}, {WORLD})"
    )


def is_own(network: str) -> bool:
    """Whether the name of a network is of the user's own encoder, `module:Class`."""
    return ":" in network


def check_own(network: str) -> None:
    """Raises UserError for a class of the user's that is no network; functions that return one are called later."""
    made = load_class(network, "network", FLAG)
    if isinstance(made, type) and not any(base.__module__.startswith("flax.") for base in made.__mro__):
        raise UserError(f"cannot use the network {network!r}: it is not a subclass of flax.nnx.Module ({FLAG})")


def check_reads(network: str, specs: Mapping[str, ArraySpec], reads: Iterable[str], world: str) -> None:
    """Raises UserError if a network cannot read a world.

    `reads`: the world's observations for the networks BY_SPECS, and those of users.
    """
    fits_any = f"{GENERAL!r} reads any observations ({FLAG})"
    if network not in BY_SPECS and not is_own(network):
        for name in FIXED[network].reads if network in FIXED else (PROMPT,):
            if name not in specs:
                raise UserError(f"the network {network!r} reads {name!r}, which {world!r} does not have: {fits_any}")
        if network in PROMPT_NETWORKS and kind_of(PROMPT, specs[PROMPT]) != "text":
            raise UserError(f"the network {network!r} reads a text, which {PROMPT!r} of {world!r} is not ({FLAG})")
        return
    if not (reads := tuple(reads)):
        raise UserError(f"`reads` of the world {world!r} is empty, so a policy cannot read it ({WORLD})")
    for name in reads:
        if name not in specs or name.startswith("event_") or name == BEHAVIOUR:
            why = "does not exist, is known only after an action, or has a name that is taken"
            raise UserError(f"the world {world!r} lets a policy read {name!r}, which {why} ({WORLD})")
        if not is_own(network):
            kind_of(name, specs[name])
    needed = BY_SPECS[network].needs if network in BY_SPECS else frozenset()
    if needed and not needed <= {kind_of(name, specs[name]) for name in reads}:
        kinds = " and ".join(f"a {kind}" for kind in sorted(needed))
        has = f"{world!r} lets a policy read {', '.join(reads)}"
        raise UserError(f"the network {network!r} reads {kinds}, but {has}: {fits_any}")


def to_record(specs: Mapping[str, ArraySpec]) -> dict[str, list[Any]]:
    """Converts specs to JSON for a checkpoint."""
    return {name: [list(spec.shape), *spec[1:]] for name, spec in specs.items()}


def from_record(record: Mapping[str, Iterable[Any]]) -> dict[str, ArraySpec]:
    """Restores specs from `to_record`."""
    return {name: ArraySpec(tuple(shape), *rest) for name, (shape, *rest) in record.items()}
