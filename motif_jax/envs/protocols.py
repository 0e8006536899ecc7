"""Protocols: the rules of the games in evaluation, for comparison with published results.

    task        the games of config.env (default)
    NAME=VALUE  the same with other values of config.env.babyai (variations.py)
    challenge   the NetHack Challenge (arXiv 2203.11889), NLE's NetHackChallenge: a random character per episode, one
                million steps, and an end after 10,000 steps without game time. The return is the change of the score.
                The Challenge ranks by ascensions, then by the median score, then by the mean.

The policy keeps its actions and its handling of questions and pages; a step is one of its actions, while the Challenge
counts each key. All protocols have the same figures, including BALROG's progression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from motif_jax.envs.babyai.settings import SECTION
from motif_jax.envs.babyai.variations import is_variation, parse_variation
from motif_jax.envs.nethack.settings import GAMES
from motif_jax.envs.nethack.tasks import ANY_CHARACTER
from motif_jax.envs.settings import title
from motif_jax.structs import UserError

FLAG = "--config.evaluate.protocol"
TASK = "task"
CHANGED: dict[str, dict[str, Any]] = {  # changed values of config.env, by protocol
    TASK: {},
    "challenge": {
        "task": "score", "character": ANY_CHARACTER, "max_episode_steps": 1_000_000, "no_progress_steps": 10_000,
        "penalty_mode": "constant", "penalty_step": 0.0,
    },
}  # fmt: skip

TITLES = {"challenge": "the NetHack Challenge"}  # in sentences


def check_protocol(config: ConfigDict) -> None:
    """Raises UserError if the protocol does not belong to the game that `config.env` names."""
    env, protocol = config.env, config.evaluate.protocol
    if CHANGED.get(protocol) and (env.world != "nethack" or env.task in GAMES or ":" in env.task):
        raise UserError(f"the protocol {protocol!r} is for NetHack, not for {title(env)!r} ({FLAG}, --config.env)")


def by_protocol(config: ConfigDict) -> ConfigDict:
    """Returns the config with the protocol's games."""
    changed = _changes(config.evaluate.protocol)
    if not changed:
        return config
    found = config.copy_and_resolve_references()
    found.env.update(changed)  # merges nested sections too
    return found


def _changes(protocol: str) -> dict[str, Any]:
    return {SECTION: parse_variation(protocol)} if is_variation(protocol) else CHANGED.get(protocol, {})


def env_by_protocol(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the section `env` of a recorded config with the protocol's games; old records may lack a protocol."""
    protocol = record.get("evaluate", {}).get("protocol", TASK)
    env = dict(record.get("env", {}))
    for name, value in _changes(protocol).items():
        env[name] = {**env.get(name, {}), **value} if isinstance(value, dict) else value
    return env


def suffix(protocol: str) -> str:
    """Returns the suffix of result directories' names."""
    return "" if protocol == TASK else f"-{protocol}"
