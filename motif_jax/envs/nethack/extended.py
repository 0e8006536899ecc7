"""ONI's extended actions (arXiv 2410.23022): five keys more than Motif's, and three things done for the player.

    CAST    presses Z, and in the menu of spells that comes up `a`, the first; a direction is left to the player
    QUAFF   "What do you want to drink? [fg or ?*]" is answered as the question what to eat is (`keys.offered_key`)
    skills  "You feel more confident in your ... skills.": the first skill that can be enhanced is, as soon as no
            question is open. The message of the step is then what that says, unless it is about descending the stairs

Questions about drinking are left to the player as well. An episode has one figure more, `kills`: how often the game
said "you kill ". All of it, and what levels have been seen, begins anew with each episode.

ONI's release differs in six points, which `reference` brings back:

    1. Questions are left to the player by words in lower case, and by parts of words: "Drink from the fountain?" is
       declined, and "great" has "eat" in it.
    2. "You descend the stairs." is lost if any key but SPACE follows in the same step, as for a skill; and while it is
       kept it hides the question that comes up, which is declined.
    3. `a` follows every Z: also if no spell is known, and if Z is the letter of what is eaten or drunk.
    4. `kills` counts a message one step later, once, and none of the pages that are turned, nor the last of an episode.
    5. After the keys for a skill, no page is turned and no question declined: they wait for the player's next key.
    6. The message between Z and `a` can announce a skill only if the game shows a page after `a`.
"""

from __future__ import annotations

import re
from typing import Any

from nle import nethack

from motif_jax.envs.nethack.game import EAT_PROMPT, NetHackGame
from motif_jax.envs.nethack.keys import EXTENDED_KEYS, offered_key
from motif_jax.envs.nethack.prompts import AT_PAGE, IN_QUESTION
from motif_jax.envs.seeding import GameSeed

CAST, ENHANCE = int(nethack.Command.CAST), int(nethack.Command.ENHANCE)
FIRST = ord("a")  # of a menu
DRINK_PROMPT = b"What do you want to drink"
CONFIDENT = b"feel more confident in your"
KILL = b"you kill "  # in any case
LEFT_TO_PLAYER = re.compile(rb"\b(eat|attack|pray|drink)(ing)?\b|direction\?", re.IGNORECASE)
LEFT_BY_RELEASE = re.compile(rb"eat|attack|direction\?|pray|drink")


class ExtendedGame(NetHackGame):
    """A game with the 28 actions; see the module docstring."""

    keys = EXTENDED_KEYS
    num_actions = len(EXTENDED_KEYS)

    def __init__(self, *arguments: Any, reference: bool = False, **options: Any):
        """Arguments as for `NetHackGame`; `reference`: with the errors of ONI's release."""
        super().__init__(*arguments, **options)
        self._reference = reference
        self._line_or_page = memoryview(b"\1")  # each step is settled, because each message matters

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        """Starts the game of this seed."""
        super().reset(seed, episode)
        self._send = self._press
        self._kills = 0
        self._confident = False  # a skill can be enhanced
        self._kept = self._heard = b""

    def close(self) -> None:
        """Frees the engine's files and memory."""
        self._send = None
        super().close()

    def _own_figures(self) -> dict[str, float]:
        return {"kills": self._kills}

    def _press(self, key: int) -> None:
        """Sends the key of an action, and the letter of a spell."""
        raw, internal, message = self._raw, self._internal, self.message
        if self._reference:
            self._kills += KILL in message.lower()
        answers = bool(internal[IN_QUESTION]) or EAT_PROMPT in message
        if DRINK_PROMPT in message:
            key, answers = offered_key(key, message), True
        self._heard = b""
        raw.step(key)
        if key != CAST or raw.done():
            return
        if self._reference:
            between = bytes(self._message)
            raw.step(FIRST)
            self._confident |= bool(internal[AT_PAGE]) and CONFIDENT in between
        elif not answers and internal[AT_PAGE]:  # the page is the menu; without spells there is none
            raw.step(FIRST)

    def _settle(self) -> bytes:
        message = super()._settle()
        raw, internal = self._raw, self._internal
        if self._confident and not raw.done() and not internal[IN_QUESTION]:
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
        """What the game says now, which is listened to."""
        text = super()._read()
        if text != self._heard:  # a text stays where it is while a menu covers it
            self._heard = text
            self._confident |= CONFIDENT in text
            if not self._reference:
                self._kills += text.lower().count(KILL)
        return text

    def _leaves(self, question: bytes) -> bool:
        if not self._reference:
            return LEFT_TO_PLAYER.search(question) is not None
        return not self._kept and LEFT_BY_RELEASE.search(question) is not None

    def _escape(self) -> None:
        super()._escape()
        if self._reference:
            self._kept = b""
