"""The actions of a player, and the keys that they press."""

from __future__ import annotations

import re

from nle import nethack

ACTIONS = (
    nethack.MiscAction.MORE,
    *nethack.CompassDirection,
    *nethack.CompassDirectionLonger,
    *nethack.MiscDirection,
    nethack.Command.KICK,
    nethack.Command.EAT,
    nethack.Command.SEARCH,
)
KEYS = tuple(int(action) for action in ACTIONS)
ACTION_NAMES = tuple(
    "far " * isinstance(action, nethack.CompassDirectionLonger) + action.name.lower() for action in ACTIONS
)
YES = KEYS.index(ord("y"))  # also: move north-west
FIRST_OFFER = re.compile(rb"\[([A-Za-z])")  # in a question such as "What do you want to eat? [fg or ?*]"
SPACE, ESCAPE = ord(" "), 27


def eat_key(action: int, prompt: bytes) -> int:
    """The key for `action` while `prompt` asks what to eat.

    For "y" that is the letter right after the bracket, as in `[fg or ?*]`. Other actions decline, with SPACE; so does
    "y" where the first offer is not a letter, as in `[$ or ?*]` and `[$ab or ?*]`, as in the published system.
    """
    offered = FIRST_OFFER.search(prompt) if action == YES else None
    return ord(offered[1]) if offered else SPACE
