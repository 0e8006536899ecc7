"""Wordle as a world (`envs/world.py`): `--config.env.world=wordle`.

Options: `words`, one of our lists by name (`vocabulary.LISTS`) or a file with a word per line; `counted`, whether a
letter is green or yellow only as often as the hidden word has it, as in the usual game.

Scripted players see the position, not the hidden word:

    candidate          a random fitting word
    optimal(START)     the fitting word with the largest expected information; the first guess by START
    repeat(N START)    one of the first N words played so far (default: all), at random; the first guess by START
    start              the first guess from a list of good openers, then as candidate
    wrong              a random word that does not fit
    montecarlo(N HOW)  continues with the player HOW in N simulated games, and makes the best mean return's guess
    user(HINT)         asks at the terminal; shows the guess of the player HINT

`optimal` is greedy: it looks one guess ahead. START, HOW and HINT are names of players.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from motif_jax.config.table import Flag, Text
from motif_jax.console import print_line
from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import FLAG, Makers, TextPlayer, TextWorld, take_number, without_arguments
from motif_jax.envs.wordle.vocabulary import ALL_GREEN, LENGTH, PATTERNS, Vocabulary, digits, is_guess, load_vocabulary
from motif_jax.envs.world import GREY, WHITE, Pieces
from motif_jax.screens import REVERSED, printable
from motif_jax.structs import EndStatus, Turn, UserError

# A game of Wordle (`envs/text_game.py`), and its screen. The agent writes `crane`, the world `<b><g><y><b><b>`.
#
# There are six tries. The hidden word is drawn again before each guess, from all words that fit the guesses so far, so
# the guesses and colours are the full state: the game is Markov. The reward is 0 for the right guess, -1 for any other.
# A text that is not five letters a-z costs a try.

TRIES = 6
WORDS = ("black", "yellow", "green")  # by digit
LOST = "no tries are left"
BLACK, YELLOW, GREEN = 8, 11, 2
COLOURS = (BLACK, YELLOW, GREEN)  # of letters, by digit
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
WIDTH = 39
LISTED = 12  # fitting words on the screen


class Guess(NamedTuple):
    """A try."""

    text: str
    colours: int  # -1 for a text that is not five letters


class Position(NamedTuple):
    """A moment of the game."""

    fitting: int  # the possible hidden words, as a set of `Vocabulary`
    guesses: tuple[Guess, ...] = ()

    @property
    def won(self) -> bool:
        """Whether the last guess found the word."""
        return bool(self.guesses) and self.guesses[-1].colours == ALL_GREEN

    @property
    def over(self) -> bool:
        return self.won or len(self.guesses) >= TRIES

    @property
    def reward(self) -> float:
        """The reward of the last guess."""
        return 0.0 if self.won else -1.0

    @property
    def legal(self) -> list[str]:
        """The guesses that were five letters."""
        return [guess.text for guess in self.guesses if guess.colours >= 0]


class WordleView(NamedTuple):
    """The players' view of a game."""

    vocabulary: Vocabulary
    position: Position


def guess(vocabulary: Vocabulary, position: Position, text: str, rng: random.Random) -> Position:
    """Draws the hidden word and takes a guess; returns the position after it."""
    if not is_guess(text):
        return Position(position.fitting, (*position.guesses, Guess(text, -1)))
    members = vocabulary.members(position.fitting)
    hidden = members[int(rng.random() * len(members))]
    colours = int(vocabulary.colours(text)[hidden])
    return Position(position.fitting & vocabulary.fitting(text, colours), (*position.guesses, Guess(text, colours)))


class WordleGame(TextGame):
    """See the module docstring."""

    def __init__(self, vocabulary: Vocabulary, *, written: int, heard: int, time_limit: int):
        super().__init__(written, heard, time_limit)
        self.vocabulary = vocabulary
        self.position = Position(vocabulary.everything)

    def open(self) -> str:
        self.position = Position(self.vocabulary.everything)
        return ""

    def answer(self, text: str) -> Answer:
        """See `TextGame`; a text that is not five letters is not answered."""
        self.position = guess(self.vocabulary, self.position, text, self.random)
        colours = self.position.guesses[-1].colours
        reply = PATTERNS[colours] if colours >= 0 else ""
        end, cause = EndStatus.RUNNING, ""
        if self.position.won:
            end = EndStatus.TASK_SUCCESSFUL
        elif self.position.over:
            end, cause = EndStatus.ENDED, LOST
        return Answer(reply, self.position.reward, end, cause)

    def draw(self, chance: float) -> str:
        return self.vocabulary.words[int(chance * len(self.vocabulary.words))]

    @property
    def hidden(self) -> Position:
        return self.position

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        self.position = hidden

    @property
    def steps(self) -> int:
        return len(self.position.guesses)

    def measure(self) -> tuple[float, ...]:
        legal = len(self.position.legal)
        return self.steps, self.steps - legal, self.position.fitting.bit_count()

    def caption(self) -> str:
        count = self.position.fitting.bit_count()
        fitting = f"{count:,} word{'s fit' if count > 1 else ' fits'}"
        if not self.position.guesses:
            return f"A word of five letters is hidden: {fitting}"
        text, colours = self.position.guesses[-1]
        if colours < 0:
            return f'"{text}" is not five letters: {fitting}'
        if self.position.won:
            return f"{text} is the word"
        return f"{text} is {' '.join(WORDS[digit] for digit in digits(colours))}: {fitting}"

    def drawn(self) -> Sequence[Pieces]:
        """See `TextGame`: the guesses, the keys with their best colours so far, and some of the fitting words."""
        rows: list[Pieces] = []
        best: dict[str, int] = {}  # digit of a letter's best colour
        margin = (" " * ((WIDTH - 4 * LENGTH) // 2), GREY)
        for number in range(TRIES):
            if number >= len(self.position.guesses):
                rows.append([margin, *[(" _  ", BLACK)] * LENGTH])
            elif (guess := self.position.guesses[number]).colours < 0:
                rows.append([margin, (printable(guess.text)[:16] or "(nothing)", GREY)])
            else:
                row: Pieces = [margin]
                for letter, digit in zip(guess.text, digits(guess.colours), strict=True):
                    best[letter] = max(best.get(letter, 0), digit)
                    row += [(f" {letter.upper()} ", COLOURS[digit] + REVERSED), (" ", GREY)]
                rows.append(row)
            rows.append([])
        for keys in KEYS:
            space = (" " * ((WIDTH - 4 * len(keys)) // 2), GREY)
            rows.append([space, *((f" {key}  ", COLOURS[best[key]] if key in best else WHITE) for key in keys)])
        members = self.vocabulary.members(self.position.fitting)
        words = [self.vocabulary.words[index] for index in members[:LISTED]]
        dots = "" if len(members) <= LISTED else " ..."
        listed = [" ".join(words[:6]), " ".join(words[6:]) + dots]
        return [*rows, [], *([(line.center(WIDTH), GREY)] for line in listed)]


OPENERS = (
    "crane", "slate", "stare", "trace", "arise", "raise", "later", "alert", "learn", "stone", "least", "heart",
    "roast", "tears", "aside", "audio", "train", "irate", "great", "ocean", "earth", "cream", "store", "score",
    "plane", "beach", "grape", "table",
)  # fmt: skip
MOST_ROLLOUTS = 100_000


class Candidate:
    """Guesses a random fitting word."""

    def __init__(self, other: TextPlayer | None = None):
        """Takes another player, for the first guess or, of some players, for another purpose."""
        self._other = other

    def begin(self, rng: random.Random) -> None:
        self._rng = rng
        if self._other:
            self._other.begin(rng)

    def choose(self, game: WordleView) -> str:
        return self._other.choose(game) if self._other and not game.position.legal else self.go_on(game)

    def go_on(self, game: WordleView) -> str:
        """Returns a later guess; without another player, also the first."""
        return self.pick(game, game.vocabulary.members(game.position.fitting))

    def pick(self, game: WordleView, indices: Sequence[int]) -> str:
        """Draws one of the words with these indices."""
        return game.vocabulary.words[indices[int(self._rng.random() * len(indices))]]


class Wrong(Candidate):
    """Guesses a random word that does not fit; any word if all fit."""

    def go_on(self, game: WordleView) -> str:
        words = game.vocabulary
        others = words.everything & ~game.position.fitting
        return self.pick(game, words.members(others or words.everything))


class Start(Candidate):
    """Guesses first a random opener that is in the list, then as `Candidate`."""

    def go_on(self, game: WordleView) -> str:
        openers = [] if game.position.guesses else sorted({*OPENERS} & {*game.vocabulary.words})
        return self._rng.choice(openers) if openers else super().go_on(game)


class RandomWord(Candidate):
    """Guesses a random word of the list."""

    def go_on(self, game: WordleView) -> str:
        return self.pick(game, range(len(game.vocabulary.words)))


class Optimal(Candidate):
    """See the module docstring."""

    def go_on(self, game: WordleView) -> str:
        return self.pick(game, game.vocabulary.most_telling(game.position.fitting))


class Repeat(Candidate):
    """See the module docstring."""

    def __init__(self, first: int, start: TextPlayer | None):
        super().__init__(start or RandomWord())
        self._first = first

    def go_on(self, game: WordleView) -> str:
        return self._rng.choice(game.position.legal[: self._first])


class MonteCarlo(Candidate):
    """See the module docstring."""

    def __init__(self, rollouts: int, sampler: TextPlayer | None):
        super().__init__()
        self._rollouts, self._sampler = rollouts, sampler or Candidate()

    def choose(self, game: WordleView) -> str:
        totals: dict[str, list[float]] = {}
        for _ in range(self._rollouts):
            position, total, first = game.position, 0.0, ""
            self._sampler.begin(self._rng)
            while not position.over:
                text = self._sampler.choose(WordleView(game.vocabulary, position))
                first = first or text
                position = guess(game.vocabulary, position, text, self._rng)
                total += position.reward
            totals.setdefault(first, []).append(total)
        return max(totals, key=lambda text: sum(totals[text]) / len(totals[text]))


class User(Candidate):
    """See the module docstring."""

    def __init__(self, hint: TextPlayer | None, read: Callable[[str], str] = input):
        super().__init__(hint)
        self._read = read

    def choose(self, game: WordleView) -> str:
        for text, colours in game.position.guesses:
            print_line(f"{text}  {PATTERNS[colours] if colours >= 0 else 'is not five letters'}")
        print_line(f"{game.position.fitting.bit_count():,} words fit")
        if self._other:
            print_line(f"hint: {self._other.choose(game)}")
        while True:
            try:
                text = self._read(f"try {len(game.position.guesses) + 1}: ").strip().lower()
            except EOFError:
                raise UserError(f"the player 'user' needs a terminal, and no workers ({FLAG}, .num_workers)") from None
            if is_guess(text):
                return text
            print_line("five letters a-z, please", sys.stderr)


def _inner(outer: str, arguments: list[str]) -> TextPlayer | None:
    """Makes the player that the only argument names; None without arguments."""
    if not arguments:
        return None
    if len(arguments) > 1 or arguments[0] not in INNER:
        given = " ".join(arguments)[:100]
        raise UserError(f"the player {outer!r} takes one of {', '.join(INNER)}, not {given!r} ({FLAG})")
    return INNER[arguments[0]]()


INNER: dict[str, Callable[[], TextPlayer]] = {
    "random": RandomWord, "candidate": Candidate, "wrong": Wrong, "start": Start, "optimal": Optimal,
}  # fmt: skip


MAKERS: Makers = {
    "candidate": without_arguments("candidate", Candidate),
    "optimal": lambda arguments: Optimal(_inner("optimal", arguments)),
    "repeat": lambda arguments: Repeat(*_numbered("repeat", arguments, 6, 6)),
    "start": without_arguments("start", Start),
    "wrong": without_arguments("wrong", Wrong),
    "montecarlo": lambda arguments: MonteCarlo(*_numbered("montecarlo", arguments, 20, MOST_ROLLOUTS)),
    "user": lambda arguments: User(_inner("user", arguments)),
}


def _numbered(name: str, arguments: list[str], default: int, most: int) -> tuple[int, TextPlayer | None]:
    """Returns the number and the player that the arguments of the player `name` are."""
    number, rest = take_number(name, arguments, default, most)
    return number, _inner(name, rest)


class WordleWorld(TextWorld):
    """See the module docstring."""

    name = "wordle"
    about = "Wordle, a game in which a hidden word of five letters is guessed in six tries"
    figures = {"guesses": int, "malformed": int, "words_left": int}  # noqa: RUF012  (malformed: not five letters)
    written = 16  # more than five letters, so that a cut text is still too long
    heard = len(PATTERNS[0])
    makers = MAKERS

    def __init__(self, max_episode_steps: int = 5000, words: str = "small", counted: bool = False):
        super().__init__(max_episode_steps)
        Text(longest=4000).check("words", OPTIONS_FLAG, words)
        Flag().check("counted", OPTIONS_FLAG, counted)
        self._words, self._counted = words, counted

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words, read on first use."""
        return load_vocabulary(self._words, self._counted)

    def check(self) -> None:
        self.vocabulary  # noqa: B018  (reads it)

    def game(self, shown: bool = True) -> WordleGame:
        return self.game_with(self.vocabulary)

    def game_with(self, vocabulary: Vocabulary) -> WordleGame:
        """Makes a game with other hidden words."""
        return WordleGame(vocabulary, written=self.written, heard=self.heard, time_limit=self.time_limit)
