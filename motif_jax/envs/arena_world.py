"""A game for one player of TextArena (`pip install textarena`) as a world, given its id: docs/own-game.md."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

from motif_jax.envs.gym_world import SEEDS
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import GameSeed, SeedStream, game_seed
from motif_jax.structs import EndStatus, Turn, UserError

RAW = "-raw"  # TextArena's suffix for games without wrappers, whose observations are lists of new messages
PLAYER = 0


class ArenaWorld(TextWorld):
    """A game of TextArena; the attributes for subclasses are marked below."""

    # ---- set by a subclass
    id: str  # of `textarena.make`
    moves: Sequence[str]  # what random play writes
    about: str = ""  # description of the game for a language model; "": made from its id
    written, heard = 256, 2048  # maximum bytes of the agent's and of the game's texts
    enough: float = 1.0  # an episode that ends with this reward has succeeded

    # ---- the same for all subclasses
    figures = {}  # noqa: RUF012  (the base class declares it)
    makers = {}  # noqa: RUF012

    def __init__(self, max_episode_steps: int = 5000, **options: Any):
        super().__init__(max_episode_steps)
        self.options = options
        self.name = getattr(type(self), "name", self.id)
        self.about = self.about or f"the game {self.name}"

    def check(self) -> None:
        game = ArenaGame(self)
        game.begin(game_seed(0, SeedStream.TRAIN, 0), 0)
        if (size := len(game.open().encode())) > self.heard:  # begins the episode again, and returns the whole text
            what = f"the world {self.name!r} begins with a text of {size:,} bytes"
            raise UserError(f"{what}, but `heard` has room for {self.heard:,}: enlarge it ({WORLD_FLAG})")

    def game(self, shown: bool = True) -> ArenaGame:
        return ArenaGame(self)


class ArenaGame(TextGame):
    """One game. TextArena draws from Python's global generator, of which each game has a state of its own."""

    hidden: int  # the seed, from which `restore` plays the episode again

    def __init__(self, world: ArenaWorld):
        try:
            import textarena
        except ImportError as error:
            how = f"pip install textarena ({WORLD_FLAG})"
            raise UserError(f"the world {world.name!r} needs TextArena: {how}") from error
        super().__init__(world.written, world.heard, world.time_limit)
        self._moves, self._enough = world.moves, world.enough
        self._draws = random.getstate()
        with self._own_draws():
            self._env = textarena.make(world.id + RAW, **world.options)

    def begin(self, seed: GameSeed, episode: int) -> None:
        self.hidden = seed.core % SEEDS
        super().begin(seed, episode)

    def open(self) -> str:
        return self._replay(())

    def answer(self, text: str) -> Answer:
        with self._own_draws():
            done, _ = self._env.step(action=text)
            reply = self._new_messages()
            if not done:
                return Answer(reply, 0.0)
            rewards, infos = self._env.close()
        reward = float(rewards[PLAYER])
        reason = str(infos[PLAYER].get("reason") or "")
        reply = "\n".join(filter(None, (reply, reason)))  # with the reason for the end
        won = reward >= self._enough
        end = EndStatus.TASK_SUCCESSFUL if won else EndStatus.ENDED
        return Answer(reply, reward, end, "" if won else reason)

    def draw(self, chance: float) -> str:
        return self._moves[int(chance * len(self._moves))]

    def restore(self, turns: Sequence[Turn], hidden: int) -> None:
        self.hidden = hidden
        self._replay(turns)

    def _replay(self, turns: Sequence[Turn]) -> str:
        """Begins the episode and repeats the agent's turns; returns the game's first text."""
        with self._own_draws():
            random.seed(self.hidden)
            self._env.reset(num_players=1, seed=self.hidden)
            first = self._new_messages()
            for turn in turns:
                if turn.is_action:
                    self._env.step(action=turn.text)
                    self._new_messages()
        return first

    def _new_messages(self) -> str:
        _, messages = self._env.get_observation()
        return "\n".join(str(text) for speaker, text, _ in messages if speaker != PLAYER)

    @contextlib.contextmanager
    def _own_draws(self) -> Iterator[None]:
        before = random.getstate()
        random.setstate(self._draws)
        try:
            yield
        finally:
            self._draws = random.getstate()
            random.setstate(before)
