"""The actions of a player and their keys, and the questions that are left to the player."""

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
EXTENDED = (  # additional ones of `extended.py`
    nethack.Command.CAST,
    nethack.Command.QUAFF,
    nethack.Command.PRAY,
    nethack.Command.PICKUP,
    nethack.Command.PAY,
)
KEYS = tuple(int(action) for action in ACTIONS)
EXTENDED_KEYS = (*KEYS, *(int(action) for action in EXTENDED))
ACTION_NAMES = tuple(
    "far " * isinstance(action, nethack.CompassDirectionLonger) + action.name.lower() for action in ACTIONS
)
EXTENDED_NAMES = (*ACTION_NAMES, *(action.name.lower() for action in EXTENDED))
YES = KEYS.index(ord("y"))  # also: move north-west
FIRST_OFFER = re.compile(rb"\[([A-Za-z])")  # in a question such as "What do you want to eat? [fg or ?*]"
SPACE, ESCAPE = ord(" "), 27
NUL = b"\0"
DESCEND = b"You descend the stairs"
LEFT_TO_PLAYER = re.compile(rb"eat|attack|direction\?|pray")
IN_QUESTION, IN_LINE, AT_PAGE, ON_STAIRS_DOWN = 1, 2, 3, 4  # of internal


def offered_key(key: int, prompt: bytes) -> int:
    """Returns the key that replaces `key` while `prompt` asks what to eat or drink.

    For "y" it is the letter right after the bracket, as in `[fg or ?*]`. Other keys decline with SPACE. As in the
    published system, so does "y" if the first offer is not a letter, as in `[$ or ?*]` and `[$ab or ?*]`.
    """
    offered = FIRST_OFFER.search(prompt) if key == KEYS[YES] else None
    return ord(offered[1]) if offered else SPACE
