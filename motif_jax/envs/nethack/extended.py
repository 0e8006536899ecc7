"""ONI's extended actions (arXiv 2410.23022): five keys more than Motif's, and three automatic key sequences.

    CAST    presses Z, then `a` for the first spell in the menu; the player chooses the direction
    QUAFF   answers "What do you want to drink? [fg or ?*]" like the question about eating (`game.offered_key`)
    skills  after "You feel more confident in your ... skills.", enhances the first possible skill when no question is
            open. The game's reply is then the message of the step, unless the step descended the stairs

The player also answers questions about drinking. Episodes have an additional figure `kills`, the number of times that
the game said "you kill ". All state is reset at the start of an episode.

ONI's release differs in seven points, which `reference` reproduces:

    1. Questions for the player are found by lower-case words and by substrings: "Drink from the fountain?" is declined,
       and "great" matches "eat".
    2. "You descend the stairs." is lost if a key other than SPACE follows in the same step, as for a skill; while it is
       kept, it hides the question that follows, which is declined.
    3. `a` follows every Z, even if the player does not know a spell, or if Z is the letter of food or a drink.
    4. `kills` counts a message one step later and once, and misses pages that are turned and the last message.
    5. After the keys for a skill, pages and questions are left for the player's next key.
    6. The message between Z and `a`, which announces no skill here, does so if the game shows a page after `a`.
    7. In a step that declines a question, no skill is enhanced; it is in a later one.
"""

from __future__ import annotations

import re
from typing import Any

from nle import nethack

from motif_jax.envs.nethack.game import AT_PAGE, EAT_PROMPT, EXTENDED_KEYS, IN_QUESTION, NetHackGame, offered_key
from motif_jax.envs.world import GameSeed

CAST, ENHANCE = int(nethack.Command.CAST), int(nethack.Command.ENHANCE)
FIRST = ord("a")  # of a menu
DRINK_PROMPT = b"What do you want to drink"
CONFIDENT = b"feel more confident in your"
KILL = b"you kill "  # in any case
LEFT_BY_RELEASE = re.compile(rb"eat|attack|direction\?|pray|drink")


class ExtendedGame(NetHackGame):
    """A game with the 28 actions; see the module docstring."""

    keys = EXTENDED_KEYS
    num_actions = len(EXTENDED_KEYS)
    left_to_player = re.compile(rb"\b(eat|attack|pray|drink)(ing)?\b|direction\?", re.IGNORECASE)

    def __init__(self, settings: Any, *arguments: Any):
        super().__init__(settings, *arguments)
        self._reference = settings.reference_extended  # the errors of ONI's release
        self._line_or_page = memoryview(b"\1")  # makes `step` call `_settle` always, because each message matters

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        super().reset(seed, episode)
        self._send = self._press
        self._kills = 0
        self._confident = False  # a skill can be enhanced
        self._kept = self._last_text = b""

    def close(self) -> None:
        self._send = None
        super().close()

    def _own_figures(self) -> dict[str, float]:
        return {"kills": self._kills}

    def _press(self, key: int) -> None:
        """Sends the key of an action, and `a` for a spell."""
        raw, internal, message = self._raw, self._internal, self.message
        if self._reference:
            self._kills += KILL in message.lower()
        answers = bool(internal[IN_QUESTION]) or EAT_PROMPT in message
        if DRINK_PROMPT in message:
            key, answers = offered_key(key, message), True
        self._last_text = b""
        raw.step(key)
        if key != CAST or raw.done():
            return
        if self._reference:
            between = bytes(self._message)
            raw.step(FIRST)
            self._confident |= bool(internal[AT_PAGE]) and CONFIDENT in between
        elif not answers and internal[AT_PAGE]:  # the page is the menu of spells
            raw.step(FIRST)

    def _settle(self) -> bytes:
        self._declined = False  # whether the release has declined a question in this step
        message = super()._settle()
        raw, internal = self._raw, self._internal
        blocked = internal[IN_QUESTION] or self._declined
        if self._confident and not raw.done() and not blocked:
            self._confident = False
            stairs = self._kept
            raw.step(ENHANCE)
            if self._reference:
                raw.step(FIRST)
                return self._read()
            if internal[AT_PAGE]:
                raw.step(FIRST)
            message = super()._settle()
            if stairs:
                message = self._show(stairs)
        return message

    def _read(self) -> bytes:
        """Returns the game's message, and looks for skills and kills in it."""
        text = super()._read()
        if text != self._last_text:  # a text stays in the buffer while a menu covers it
            self._last_text = text
            self._confident |= CONFIDENT in text
            if not self._reference:
                self._kills += text.lower().count(KILL)
        return text

    def _leaves(self, question: bytes) -> bool:
        if not self._reference:
            return super()._leaves(question)
        self._declined = bool(self._kept) or LEFT_BY_RELEASE.search(question) is None
        return not self._declined

    def _escape(self) -> None:
        super()._escape()
        if self._reference:
            self._kept = b""
