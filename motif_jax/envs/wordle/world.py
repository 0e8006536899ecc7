"""Wordle as a world, `--config.env.world=wordle`. Its rules, options and scripted players: docs/wordle.md."""

from __future__ import annotations

import functools
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import PATH, Flag, Whole
from motif_jax.console import print_line
from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import FLAG, Makers, Picker, TextPlayer, TextWorld, without_arguments
from motif_jax.envs.world import GREY, WHITE, Pieces
from motif_jax.screens import REVERSED, printable
from motif_jax.structs import EndStatus, Meaning, UserError, legible
from motif_jax.system.foreign import read_text

# The words, the colours of a guess, and the words that fit them.
#
# The colours of a guess are one number in base 3, with a digit per letter (0 black, 1 yellow, 2 green). A set of words
# is an integer with a bit per word: the words that fit all guesses are the intersection of one such set per guess.

LENGTH = 5  # letters of a word
PATTERNS = tuple(map("".join, itertools.product(("<b>", "<y>", "<g>"), repeat=LENGTH)))  # texts of all colours
ALL_GREEN = len(PATTERNS) - 1
LISTS = ("small", "larger")  # our word lists
FOLDER = Path(__file__).parent / "words"
MOST_WORDS = 65_536
TIE = 1e-9  # tolerance for equal scores, in nats
PLACES = 3 ** np.arange(LENGTH - 1, -1, -1)


def is_guess(text: str) -> bool:
    """Whether the text is five letters a-z; it need not be a word."""
    return len(text) == LENGTH and text.isascii() and text.isalpha() and text.islower()


def digits(colours: int) -> list[int]:
    """Returns the digit of each letter's colour."""
    return (colours // PLACES % 3).tolist()


class Vocabulary:
    """The words that can be hidden."""

    def __init__(self, words: tuple[str, ...], counted: bool = False):
        """Takes words of five letters a-z, each once.

        `counted`: letters are green or yellow only as often as the word has them, from left to right.
        """
        self.words, self.counted = words, counted
        self.everything = (1 << len(words)) - 1
        self._letters = np.frombuffer("".join(words).encode(), np.uint8).reshape(-1, LENGTH)  # [V, 5]
        self._has = np.zeros((len(words), 128), bool)  # [V, character]
        self._has[np.arange(len(words))[:, None], self._letters] = True
        # Caches shared by all games. The limits keep the memory of large lists below a few hundred MB.
        self.colours = functools.lru_cache(4096)(self._colours)
        self.colours_if = functools.lru_cache(1024)(self._colours_if)
        self.fitting = functools.lru_cache(2**16)(self._fitting)
        self.members = functools.lru_cache(2**14)(self._members)
        self.most_telling = functools.lru_cache(2**14)(self._most_telling)

    def _colours(self, guess: str) -> np.ndarray:
        """Returns the colours of a guess for each hidden word. [V] uint8"""
        letters = np.frombuffer(guess.encode(), np.uint8)  # [5]
        return self._compare(letters[None], self._letters, self._has[:, letters])

    def _colours_if(self, hidden: int) -> np.ndarray:
        """Returns the colours of each word as a guess, given the index of the hidden word. [V] uint8"""
        return self._compare(self._letters, self._letters[hidden][None], self._has[hidden][self._letters])

    def _compare(self, guesses: np.ndarray, hidden: np.ndarray, has: np.ndarray) -> np.ndarray:
        """Returns colours. [V or 1, 5] letters of both, and [V, 5] which the hidden words have -> [V] uint8"""
        green, yellow = guesses == hidden, has
        if self.counted:
            same = guesses[:, :, None] == hidden[:, None, :]  # [V, places of the guess, places of the hidden word]
            left = (same & ~green[:, None, :]).sum(2)  # copies of the letter that are not green
            alike = (guesses[:, :, None] == guesses[:, None, :]) & ~green[:, None, :]
            yellow = np.tril(alike, -1).sum(2) < left  # those before it have taken fewer
        return (np.where(green, 2, yellow) @ PLACES).astype(np.uint8)

    def _fitting(self, guess: str, colours: int) -> int:
        """Returns the set of hidden words for which a guess gets these colours."""
        return int.from_bytes(np.packbits(self.colours(guess) == colours, bitorder="little").tobytes(), "little")

    def _members(self, words: int) -> tuple[int, ...]:
        """Returns the indices of the words in a set, in order."""
        size = -(-len(self.words) // 8)
        bits = np.unpackbits(np.frombuffer(words.to_bytes(size, "little"), np.uint8), bitorder="little")
        return tuple(np.flatnonzero(bits).tolist())

    def _most_telling(self, words: int) -> tuple[int, ...]:
        """Returns the indices of words in a set that, as guesses, have the largest expected information.

        It is log N - (sum of n log n) / N nats, where n of the N hidden words give the same colours.
        """
        members = self.members(words)
        where, scores = np.array(members), []
        for index in members:
            # Sorted, so that equal groups in another order give the same sum.
            sizes = np.sort(np.bincount(self.colours(self.words[index])[where]))
            sizes = sizes[sizes > 0]
            scores.append(float(np.log(len(members)) - (sizes * np.log(sizes)).sum() / len(members)))
        best = max(scores) - TIE
        return tuple(index for index, score in zip(members, scores, strict=True) if score >= best)


def load_vocabulary(source: str, counted: bool = False) -> Vocabulary:
    """Loads one of our word lists by name, or a file with a word per line.

    As in the published lists, lines of other lengths are skipped, and duplicates count once.
    """
    path = FOLDER / f"{source}.txt" if source in LISTS else Path(source)
    with legible(f"the word list {source!r} (ours are {', '.join(LISTS)})", OPTIONS_FLAG):
        words = [word for line in read_text(path).split("\n") if len(word := line.strip().lower()) == LENGTH]
        if not all(map(is_guess, words)) or not 2 <= len({*words}) <= MOST_WORDS:
            raise ValueError(f"it must have 2 to {MOST_WORDS:,} words of five letters a-z")
    return Vocabulary(tuple(dict.fromkeys(words)), counted)


# A game, and its screen. The agent writes `crane`, the world `<b><g><y><b><b>`.
#
# The hidden word is drawn again before each guess, from all words that fit the guesses so far, so the guesses and
# colours are the full state: the game is Markov.

TRIES = 6
COLOURS = (("black", 8), ("yellow", 11), ("green", 2))  # name, and colour on the screen, by digit
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
WIDTH = 39
LISTED = 12  # fitting words on the screen


class Guess(NamedTuple):
    """A try."""

    text: str
    colours: int  # -1 for a text that is not five letters


class Position(NamedTuple):
    """A moment of the game, which is all that players see."""

    vocabulary: Vocabulary
    fitting: int  # the possible hidden words, as a set of `Vocabulary`
    guesses: tuple[Guess, ...] = ()

    @property
    def won(self) -> bool:
        return bool(self.guesses) and self.guesses[-1].colours == ALL_GREEN

    @property
    def over(self) -> bool:
        return self.won or len(self.guesses) >= TRIES

    @property
    def reward(self) -> float:
        return 0.0 if self.won else -1.0

    @property
    def legal(self) -> list[str]:
        """The guesses that were five letters."""
        return [guess.text for guess in self.guesses if guess.colours >= 0]

    def guess(self, text: str, rng: random.Random) -> Position:
        """Draws the hidden word and takes a guess; returns the position after it."""
        words, fitting, colours = self.vocabulary, self.fitting, -1
        if is_guess(text):
            colours = int(words.colours(text)[_one_of(words.members(fitting), rng)])
            fitting &= words.fitting(text, colours)
        return Position(words, fitting, (*self.guesses, Guess(text, colours)))

    def word(self, indices: Sequence[int], rng: random.Random) -> str:
        """Draws one of these words."""
        return self.vocabulary.words[_one_of(indices, rng)]


def _one_of(options: Sequence[Any], rng: random.Random) -> Any:
    return options[int(rng.random() * len(options))]


class WordleGame(TextGame):
    """One game."""

    hidden: Position

    def __init__(self, vocabulary: Vocabulary, *, written: int, heard: int, time_limit: int):
        super().__init__(written, heard, time_limit)
        self._first = self.hidden = Position(vocabulary, vocabulary.everything)

    def open(self) -> str:
        self.hidden = self._first
        return ""

    def answer(self, text: str) -> Answer:
        """See `TextGame`; a text that is not five letters is not answered."""
        at = self.hidden = self.hidden.guess(text, self.random)
        colours = at.guesses[-1].colours
        reply = PATTERNS[colours] if colours >= 0 else ""
        if at.won:
            return Answer(reply, at.reward, EndStatus.TASK_SUCCESSFUL)
        if at.over:
            return Answer(reply, at.reward, EndStatus.ENDED, "no tries are left")
        return Answer(reply, at.reward)

    def draw(self, chance: float) -> str:
        words = self.hidden.vocabulary.words
        return words[int(chance * len(words))]

    @property
    def steps(self) -> int:
        return len(self.hidden.guesses)

    def measure(self) -> tuple[float, ...]:
        return self.steps, self.steps - len(self.hidden.legal), self.hidden.fitting.bit_count()

    def caption(self) -> str:
        count = self.hidden.fitting.bit_count()
        fitting = f"{count:,} word{'s fit' if count > 1 else ' fits'}"
        if not self.hidden.guesses:
            return f"A word of five letters is hidden: {fitting}"
        text, colours = self.hidden.guesses[-1]
        if colours < 0:
            return f'"{text}" is not five letters: {fitting}'
        if self.hidden.won:
            return f"{text} is the word"
        return f"{text} is {' '.join(COLOURS[digit][0] for digit in digits(colours))}: {fitting}"

    def drawn(self) -> Sequence[Pieces]:
        """See `TextGame`: the guesses, the keys with their best colours so far, and some of the fitting words."""
        rows: list[Pieces] = []
        best: dict[str, int] = {}  # digit of a letter's best colour
        margin = " " * ((WIDTH - 4 * LENGTH) // 2), GREY
        for text, colours in self.hidden.guesses:
            rows += [[margin], []]
            if colours < 0:
                rows[-2].append((printable(text)[:16] or "(nothing)", GREY))
                continue
            for letter, digit in zip(text, digits(colours), strict=True):
                best[letter] = max(best.get(letter, 0), digit)
                rows[-2] += [(f" {letter.upper()} ", COLOURS[digit][1] + REVERSED), (" ", GREY)]
        rows += [[margin, *[(" _  ", COLOURS[0][1])] * LENGTH], []] * (TRIES - self.steps)
        for keys in KEYS:
            space = " " * ((WIDTH - 4 * len(keys)) // 2), GREY
            rows.append([space, *((f" {key}  ", COLOURS[best[key]][1] if key in best else WHITE) for key in keys)])
        vocabulary = self.hidden.vocabulary
        members = vocabulary.members(self.hidden.fitting)
        words = [vocabulary.words[index] for index in members[:LISTED]]
        listed = " ".join(words[:6]), " ".join(words[6:]) + " ..." * (len(members) > LISTED)
        return [*rows, [], *([(line.center(WIDTH), GREY)] for line in listed)]


# Scripted players: docs/wordle.md.

OPENERS = (
    "crane", "slate", "stare", "trace", "arise", "raise", "later", "alert", "learn", "stone", "least", "heart",
    "roast", "tears", "aside", "audio", "train", "irate", "great", "ocean", "earth", "cream", "store", "score",
    "plane", "beach", "grape", "table",
)  # fmt: skip
Pick = Callable[[Position, random.Random], str]  # draws a guess


def _candidate(at: Position, rng: random.Random) -> str:
    return at.word(at.vocabulary.members(at.fitting), rng)


def _wrong(at: Position, rng: random.Random) -> str:
    everything = at.vocabulary.everything
    return at.word(at.vocabulary.members(everything & ~at.fitting or everything), rng)  # any word if all fit


def _start(at: Position, rng: random.Random) -> str:
    openers = [] if at.guesses else sorted({*OPENERS} & {*at.vocabulary.words})
    return rng.choice(openers) if openers else _candidate(at, rng)


PICKS: dict[str, Pick] = {
    "random": lambda at, rng: _one_of(at.vocabulary.words, rng),
    "candidate": _candidate,
    "wrong": _wrong,
    "start": _start,
    "optimal": lambda at, rng: at.word(at.vocabulary.most_telling(at.fitting), rng),  # looks one guess ahead
}


def _player(pick: Pick, first: Pick | None = None) -> Picker:
    """A player that makes guesses with `pick`, but the first with `first`."""
    return Picker(lambda game, rng: (pick if game.hidden.legal else first or pick)(game.hidden, rng))


def _inner(arguments: Sequence[str], number: int = 0) -> tuple[int, Pick | None]:
    """The arguments of a player, both optional: a number, if it has a default, and the name of another player."""
    if number and arguments and arguments[0].isdigit():
        number, arguments = int(arguments[0]), arguments[1:]
        Whole(1).check("the number in brackets", FLAG, number)
    name = " ".join(arguments)
    if name and name not in PICKS:
        raise UserError(f"the name in brackets must be one of {', '.join(PICKS)}, not {name!r:.100} ({FLAG})")
    return number, PICKS.get(name)


def _repeat(arguments: Sequence[str]) -> Picker:
    first, start = _inner(arguments, TRIES)
    return _player(lambda at, rng: rng.choice(at.legal[:first]), start or PICKS["random"])


def _monte_carlo(arguments: Sequence[str]) -> Picker:
    """Simulates games with another player, and makes the first guess that had the best mean return."""
    rollouts, sampler = _inner(arguments, 20)

    def pick(start: Position, rng: random.Random) -> str:
        totals: dict[str, list[float]] = {}
        for _ in range(rollouts):
            at, total = start, 0.0
            while not at.over:
                at = at.guess((sampler or _candidate)(at, rng), rng)
                total += at.reward
            totals.setdefault(at.guesses[len(start.guesses)].text, []).append(total)
        return max(totals, key=lambda text: sum(totals[text]) / len(totals[text]))

    return _player(pick)


def _user(arguments: Sequence[str]) -> Picker:
    """Asks at the terminal, and shows the guess of another player."""
    _, hint = _inner(arguments)

    def pick(at: Position, rng: random.Random) -> str:
        for text, colours in at.guesses:
            print_line(f"{text}  {PATTERNS[colours] if colours >= 0 else 'is not five letters'}")
        print_line(f"{at.fitting.bit_count():,} words fit")
        if hint:
            print_line(f"hint: {hint(at, rng)}")
        while not is_guess(text := input(f"try {len(at.guesses) + 1}: ").strip().lower()):
            print_line("five letters a-z, please", sys.stderr)
        return text

    return _player(pick)


def _plain(name: str) -> Callable[[list[str]], TextPlayer]:
    return without_arguments(lambda game, rng: PICKS[name](game.hidden, rng))


MAKERS: Makers = {
    "candidate": _plain("candidate"),
    "optimal": lambda arguments: _player(PICKS["optimal"], _inner(arguments)[1]),
    "repeat": _repeat,
    "start": _plain("start"),
    "wrong": _plain("wrong"),
    "montecarlo": _monte_carlo,
    "user": _user,
}


class WordleWorld(TextWorld):
    """See docs/wordle.md."""

    name = "wordle"
    about = "Wordle, a game in which a hidden word of five letters is guessed in six tries"
    figures = {"guesses": int, "malformed": int, "words_left": int}  # noqa: RUF012
    meanings = (
        Meaning("guesses", better="lower"), Meaning("malformed", note="not five letters", better="lower"),
        Meaning("words_left", note="that fit the answers", better="lower"),
    )  # fmt: skip
    written = 16  # more than five letters, so that a cut text is still too long
    heard = len(PATTERNS[0])
    makers = MAKERS

    def __init__(self, max_episode_steps: int = 5000, words: str = "small", counted: bool = False):
        super().__init__(max_episode_steps)
        PATH.check("words", OPTIONS_FLAG, words)
        Flag().check("counted", OPTIONS_FLAG, counted)
        self._words, self._counted = words, counted

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        return load_vocabulary(self._words, self._counted)

    def check(self) -> None:
        self.vocabulary  # noqa: B018  (reads it)

    def game(self, shown: bool = True) -> WordleGame:
        return self.game_with(self.vocabulary)

    def game_with(self, vocabulary: Vocabulary) -> WordleGame:
        return WordleGame(vocabulary, written=self.written, heard=self.heard, time_limit=self.time_limit)
