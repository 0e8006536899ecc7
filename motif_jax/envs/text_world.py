"""The base class of text worlds, and their scripted players.

The action of a text world is a text (`world.text_action`). In addition to the captions it has the observation `heard`:
the world's answer to the agent's last text. A player that remembers its own texts thus knows the whole conversation.

Names of scripted players:

    random                           a text that the world draws, in every world
    optimal                          a player of the world
    repeat(2)                        a player with arguments, separated by blanks
    repeat*0.6+candidate*0.4         before each text, one of several is drawn with these weights (default 1)

Commas and colons are for mixtures drawn once per episode (`actors/players.py`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from motif_jax.console import clean
from motif_jax.envs.sequential import SequentialVector, SequentialWorld
from motif_jax.envs.world import CAPTIONS, TEXT, World, suggest, text_action, to_text
from motif_jax.structs import ArraySpec, UserError

FLAG = "--config.collect.collector"
TERM = re.compile(r"([A-Za-z_]+)(?:\(([^()]*)\))?(?:\*([^*]*))?")


class TextPlayer(Protocol):
    """Plays one game."""

    def begin(self, rng: random.Random) -> None: ...  # a new episode; `rng` is the only source of randomness
    def choose(self, game: Any) -> str: ...


Makers = Mapping[str, Callable[[list[str]], TextPlayer]]  # makes a player from its arguments, by name


class Picker:
    """Writes what a function of the game and the episode's generator returns, which may ask `others`."""

    def __init__(self, pick: Callable[[Any, random.Random], str], *, others: Sequence[TextPlayer] = ()):
        self._pick, self._others = pick, others

    def begin(self, rng: random.Random) -> None:
        self._rng = rng
        for other in self._others:
            other.begin(rng)

    def choose(self, game: Any) -> str:
        return self._pick(game, self._rng)


def without_arguments(pick: Callable[[Any, random.Random], str]) -> Callable[[list[str]], TextPlayer]:
    """An entry of `Makers` for a `Picker` that takes no arguments."""
    return lambda arguments: Picker(pick, *arguments)


class TextWorld(SequentialWorld, World):
    """See the module docstring; subclasses set the marked attributes and define `game`."""

    # ---- for subclasses, with `name`, `about`, `figures` and `game`
    written: int  # maximum bytes of the agent's texts
    heard: int  # maximum bytes of the world's texts
    makers: Makers  # of scripted players other than `random`, by name
    moves: Sequence[str] = ()  # texts that a policy may choose among, instead of writing (choices.py)

    def expect(self, texts: Sequence[str]) -> None:
        """Receives the texts that several games are about to write, so that a server can be asked about all at once."""

    # ---- the same for all
    action_names = ()
    reads = ("heard",)
    pairs = ("message",)
    texts = None

    def __init__(self, max_episode_steps: int = 5000):
        self.time_limit = max_episode_steps

    @property
    def action(self) -> ArraySpec:  # type: ignore[override]
        return text_action(self.written)

    @property
    def specs(self) -> dict[str, ArraySpec]:  # type: ignore[override]
        heard = ArraySpec((self.heard,), "uint8", TEXT)
        return {"heard": heard, "event_heard": heard} | CAPTIONS

    @property
    def players(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("random", *self.makers)

    def check(self) -> None:
        """Nothing to check: an own game is not played before it is asked for."""

    def scripted(self, text: str) -> TextPlayer:
        made: Makers = {"random": without_arguments(lambda game, rng: game.draw(rng.random())), **self.makers}
        players: list[TextPlayer] = []
        weights: list[float] = []
        for term in re.split(r"\+(?![^(]*\))", text):
            name, arguments, weight = match.groups() if (match := TERM.fullmatch(term.strip())) else (term, "", "")
            if name not in made:
                raise UserError(f"unknown collector {clean(repr(name))} ({FLAG}): {suggest(name, made)}")
            try:
                players.append(made[name]((arguments or "").split()))
                weights.append(float(weight or 1))
            except (TypeError, ValueError):
                raise UserError(f"the player {clean(repr(term))} has an argument or weight too many ({FLAG})") from None
            if not 0 < weights[-1] < float("inf"):
                raise UserError(f"the weight of {name!r} must be a positive number, not {weight} ({FLAG})")
        if len(players) == 1:
            return players[0]
        return Picker(lambda game, rng: rng.choices(players, weights)[0].choose(game), others=players)

    def prepare(self, vector: SequentialVector) -> None:
        if type(self).expect is not TextWorld.expect:
            vector.before_step = lambda actions: self.expect(
                [action if isinstance(action, str) else to_text(action) for action in actions]
            )
