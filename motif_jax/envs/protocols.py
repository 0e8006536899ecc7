"""Protocols: the rules of evaluation's games, so that figures can be compared with published ones.

    task        the games of config.env, by default
    NAME=VALUE  those games with other values of config.env.babyai (variations.py)
    challenge   the NetHack Challenge (arXiv 2203.11889), which is NLE's NetHackChallenge: a random character each
                episode, one million steps, and an end after 10,000 steps without game time. The return is the change of
                the score. The Challenge ranks by ascensions, then by the median score, then by the mean.

The policy keeps its own actions and its handling of questions and pages; a step is one of its actions, where the
Challenge counts each key. The game's figures are the same in all protocols, BALROG's progression among them.
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
CHANGED: dict[str, dict[str, Any]] = {  # values of config.env, by protocol
    TASK: {},
    "challenge": {
        "task": "score", "character": ANY_CHARACTER, "max_episode_steps": 1_000_000, "no_progress_steps": 10_000,
        "penalty_mode": "constant", "penalty_step": 0.0,
    },
}  # fmt: skip

TITLES = {"challenge": "the NetHack Challenge"}  # in sentences


def check_protocol(config: ConfigDict) -> None:
    """Raises UserError if the protocol is of another game than the one that `config.env` names."""
    env, protocol = config.env, config.evaluate.protocol
    if CHANGED.get(protocol) and (env.world != "nethack" or env.task in GAMES or ":" in env.task):
        raise UserError(
            f"the protocol {protocol!r} is of NetHack, where {title(env)!r} is played ({FLAG}, --config.env)"
        )


def by_protocol(config: ConfigDict) -> ConfigDict:
    """The config with the games that the protocol asks for."""
    changed = _changes(config.evaluate.protocol)
    if not changed:
        return config
    found = config.copy_and_resolve_references()
    found.env.update(changed)  # sections within it likewise
    return found


def _changes(protocol: str) -> dict[str, Any]:
    return {SECTION: parse_variation(protocol)} if is_variation(protocol) else CHANGED.get(protocol, {})


def env_by_protocol(record: Mapping[str, Any]) -> dict[str, Any]:
    """The same for the section `env` of a recorded config, which may be older than protocols."""
    protocol = record.get("evaluate", {}).get("protocol", TASK)
    env = dict(record.get("env", {}))
    for name, value in _changes(protocol).items():
        env[name] = {**env.get(name, {}), **value} if isinstance(value, dict) else value
    return env


def suffix(protocol: str) -> str:
    """What the names of directories of results end with."""
    return "" if protocol == TASK else f"-{protocol}"
