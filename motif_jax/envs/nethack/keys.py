"""The actions of a player and their keys, and the automatic handling of pages and questions that follow a key.

Motif's key handling (arXiv 2310.00166, appendix; NLE's own, with one change): pages are turned, text prompts escaped
and questions declined, unless they are about eating, attacking, directions or praying. "You descend the stairs."
is kept when its page is turned: NetHack shows this message with the old level, and the new level without a message.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from nle import nethack

from motif_jax.envs.nethack import engine
from motif_jax.envs.nethack.observations import FRAME, MESSAGE_BYTES

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


class PromptedEngine:
    """An engine that writes its frames into `buffers`; `_settle` advances it until the player must choose.

    `last_frame` has the frame of the last page that was turned: the last picture of an episode that ends.
    """

    def __init__(self, buffers: dict[str, np.ndarray], character: str, library: str = engine.DLPATH):
        """Makes the engine for this character (`tasks.check_character`) without starting a game."""
        with engine.loading(library):
            self._engine = nethack.Nethack(
                observation_keys=(),
                playername=f"Agent-{character}",
                ttyrec=None,
                fix_moon_phase=True,  # otherwise games would depend on the date
            )
        self.library = library
        self._state = {"internal": np.zeros(9, np.int32), "program_state": np.zeros(6, np.int32)}
        self._raw: Any = self._engine._pynethack  # the wrapper builds an unused tuple per step
        self._raw.set_buffers(**buffers, **self._state)
        # Python reads single numbers from a memoryview several times faster than from an array.
        self._blstats = memoryview(buffers["blstats"])
        self._message = memoryview(buffers["message"])
        self._internal = memoryview(self._state["internal"])
        self._line_or_page = memoryview(self._state["internal"][IN_LINE : AT_PAGE + 1].view(np.int64))  # both at once
        self._program_state = memoryview(self._state["program_state"])
        self._glyphs = memoryview(buffers["glyphs"]).cast("B")
        self.buffers = buffers
        self.last_frame = {key: np.zeros(FRAME[key].shape, FRAME[key].dtype) for key in buffers}
        self._last_blstats = memoryview(self.last_frame["blstats"])
        self._last_glyphs = memoryview(self.last_frame["glyphs"]).cast("B")
        self._screens = [key for key in ("tty_chars", "tty_colors", "tty_cursor") if key in buffers]

    def close(self) -> None:
        self._engine.close()

    def _settle(self) -> bytes:
        """Turns pages and declines questions until the game waits for an action or is over; returns the message."""
        raw, internal = self._raw, self._internal
        self._kept = shown = b""
        while not raw.done():
            if internal[AT_PAGE]:
                page = self._read()
                if DESCEND in page:
                    self._kept = page
                if page:  # later pages of the end (inventory, tombstone) lack a message, then the bottom line
                    shown = page
                    self._last_blstats[:] = self._blstats
                    for name in self._screens:
                        self.last_frame[name][...] = self.buffers[name]
                raw.step(SPACE)
            elif internal[IN_LINE]:
                self._escape()
            else:
                if internal[IN_QUESTION] and not self._leaves(bytes(self._message)):
                    self._escape()
                break
        if raw.done():
            return shown
        message = self._read()
        return self._show(self._kept) if self._kept else message

    def _read(self) -> bytes:
        return bytes(self._message).rstrip(NUL)

    def _show(self, message: bytes) -> bytes:
        """Replaces the message in the frame; returns it."""
        self._message[:] = message.ljust(MESSAGE_BYTES, NUL)
        return message

    def _leaves(self, question: bytes) -> bool:
        """Whether a question is left to the player."""
        return LEFT_TO_PLAYER.search(question) is not None

    def _escape(self) -> None:
        """Declines a question."""
        self._raw.step(ESCAPE)
