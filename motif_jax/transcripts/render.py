"""Turns episodes into tokens, and plans the batches of an epoch.

Each distinct text is tokenised once, and episodes are concatenated from the pieces.

A template has the marks between the texts, here those of ILQL's code:

    start   text  end   text  end   ...   end_episode
    <a>     crane </a>  byybb </s>  ...   </eod>

`start` depends on the first speaker, `end` on the speaker of the text before it; `end_episode` follows only episodes
that ended by themselves. Empty texts of the environment are skipped: they mean that the world did not answer
(`LiveRenderer` does the same). At an action position the NEXT token is the agent's, including the mark after its text:
there the agent chooses. The reward of an utterance is at its last action position.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from motif_jax.structs import UserError
from motif_jax.tokens import END_TOKEN, Tokeniser
from motif_jax.transcripts.store import Turns

Array = Any  # a NumPy array, or a JAX array once it is on the devices
FLAG = "--config.transcripts.template"
ACTION_START, TEXT_START, ACTION_END, TEXT_END, EPISODE_END = range(5)  # marks, in the order of `Template`
CHECKED_WHOLE = 256  # episodes whose whole text is tokenised and compared with the pieces
# Values of `Rows.end` at an episode's last token; 0 elsewhere. TERMINAL: the episode ended after the agent's last
# choice in the row. UNFINISHED: it goes on, and the next choice is at the last token. CUT: it goes on, and the next
# choice is later.
TERMINAL, UNFINISHED, CUT = 1, 2, 3


class Template(NamedTuple):
    """The marks between texts. Each is a text, which is tokenised; the id of a special token; or "" for no mark."""

    action_start: str | int  # before the first text, if the agent says it, and in episodes without texts
    text_start: str | int  # before the first text, if the environment says it
    action_end: str | int
    text_end: str | int
    episode_end: str | int


TEMPLATES = {
    "words": Template(END_TOKEN, END_TOKEN, END_TOKEN, END_TOKEN, ""),  # for tokenisers whose tokens are words
    "marks": Template("<a>", "<s>", "</a>", "</s>", "</eod>"),  # as in the code of ILQL
    "lines": Template("\n", "", "\n", "\n", ""),  # as in LMRL-Gym
    "none": Template("", "", "", "", ""),  # the texts contain their own spaces and ends
}


def encode_marks(tokeniser: Tokeniser, template: Template) -> list[list[int]]:
    """The tokens of each mark."""
    return [[mark] if isinstance(mark, int) else list(tokeniser.encode(mark, marks=True)) for mark in template]


class Rows(NamedTuple):
    """Tokens of episodes, one row each. [R, T] each"""

    tokens: Array  # int32; 0 after the end
    segments: Array  # int32: 1 in an episode, 0 after its end
    is_action: Array  # bool: the next token is the agent's
    closes: Array  # bool: the last action position of an utterance
    reward: Array  # float32: of an utterance, at its last action position; of a cut row, at its last: see `Renderer`
    end: Array  # int8: at an episode's last token TERMINAL, UNFINISHED or CUT


class Renderer:
    """The tokens of all texts; `rows` concatenates them to episodes.

    An episode is a sequence of pieces: a start mark, its texts with an end mark each, and the mark of its end.
    """

    def __init__(
        self, turns: Turns, tokeniser: Tokeniser, template: Template, discount: float = 1.0, apart: bool = False,
        keep_end: bool = False,
    ):  # fmt: skip
        """Tokenises all texts; raises UserError if the pieces' tokens differ from those of the whole text.

        `discount`: factor per token of the agent, for rewards that `rows` cuts off. `apart`: the tokens may differ,
        because the policy also reads the texts one by one when it plays. `keep_end`: of episodes that are longer than
        a row, the row has the end, and neither marks nor rewards of what is before it.
        """
        self._keep_end = keep_end
        encoded = *map(tokeniser.encode, turns.texts), *encode_marks(tokeniser, template)
        pieces = [np.asarray(tokens, np.int64) for tokens in encoded]
        flat = np.concatenate([np.zeros(0, np.int64), *pieces])
        if len(flat) and not 0 <= flat.min() <= flat.max() < tokeniser.size:
            raise UserError(f"texts have tokens up to {flat.max()}, the tokeniser has {tokeniser.size:,} ({FLAG})")
        self._tokens = flat.astype(np.int32)  # of texts, then of marks
        self._sizes = np.array([*map(len, pieces)], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._mark, self._discount, self._terminal = len(turns.texts), discount, turns.terminal

        # The environment's empty texts are dropped.
        kept = turns.is_action | np.array([*map(bool, turns.texts)], bool)[turns.text]
        is_action, before = turns.is_action[kept], np.append(0, np.cumsum(kept))
        starts = before[turns.starts]
        counts = before[turns.ends] - starts
        # The pieces of all episodes, one after another: text or mark, and what holds for its tokens.
        self._lasts = np.cumsum(1 + 2 * counts + turns.terminal)  # the piece after each episode's last
        self._firsts = np.append(0, self._lasts[:-1])
        texts = 2 * np.arange(len(is_action)) + np.repeat(self._firsts + 1 - 2 * starts, counts)
        self._pieces = np.full(self._lasts[-1], self._mark + EPISODE_END, np.int32)
        begins = np.append(is_action, True)[starts] | (counts == 0)  # without turns, with the agent's mark
        self._pieces[self._firsts] = self._mark + np.where(begins, ACTION_START, TEXT_START)
        self._pieces[texts], self._pieces[texts + 1] = turns.text[kept], self._mark + TEXT_END - is_action
        self._agent, self._closes = np.zeros((2, len(self._pieces)), bool)
        self._agent[texts] = self._agent[texts + 1] = is_action
        # An utterance closes with the last token of its end mark, or of its text if the mark is empty.
        sizes = self._sizes.astype(np.int32)[self._pieces]
        closing = texts + (sizes[texts + 1] > 0)
        self._reward = np.zeros(len(self._pieces), np.float32)
        self._closes[closing], self._reward[closing] = is_action, turns.reward[kept]
        actions, ends = np.append(0, np.cumsum(turns.is_action)), np.cumsum(sizes, dtype=np.int64)[self._lasts - 1]
        self.lengths: np.ndarray = np.diff(ends, prepend=0)  # tokens per episode. [E] int64
        self.num_actions: np.ndarray = actions[turns.ends] - actions[turns.starts]  # of each episode. [E] int64
        if not apart and all(isinstance(mark, str) for mark in template):  # special tokens keep their neighbours apart
            self._check_pieces([*turns.texts, *map(str, template)], tokeniser)
        begun = np.append(np.flatnonzero(sizes), 0)[np.searchsorted(np.flatnonzero(sizes), self._firsts)]
        empty = (sizes[texts] + sizes[texts + 1])[is_action] == 0
        if not self.lengths.all() or self._agent[begun].any() or empty.any():
            raise UserError(
                f"with this template an episode or a text of the agent has no token, or no token before it ({FLAG})"
            )

    def rows(self, episodes: np.ndarray, width: int) -> Rows:
        """The tokens of episodes, one row each; longer ones are cut, see `keep_end`. [R] -> [R, width]

        The last token of a row whose end was cut has the discounted sum of the rewards that were cut off.
        """
        return self.packed(episodes[:, None].tolist(), width)

    def packed(self, inside: list[list[int]], width: int) -> Rows:
        """The same with several episodes in a row, each in a segment of its own. [R, width]"""
        episodes = np.array([*itertools.chain(*inside)], np.int64)
        counts = np.array([*map(len, inside)], np.int64)
        row, lengths = np.repeat(np.arange(len(inside)), counts), self.lengths[episodes]
        sizes = np.minimum(lengths, width)
        before = np.append(0, np.cumsum(sizes))
        start = before[:-1] - before[(np.cumsum(counts) - counts)[row]]  # of the episode in its row
        flat, piece, is_last = self._flat(episodes)  # [N] each
        owner, at = np.repeat(np.arange(len(episodes)), lengths), _ranges(-self._skipped(lengths, width), lengths)
        agent, kept = self._agent[piece], (at >= 0) & (at < width)
        reward = np.where(is_last, self._reward[piece], np.float32(0))
        shape, kinds = (len(inside), width), (np.int32, np.int32, bool, bool, np.float32, np.int8)
        rows = Rows(*(np.zeros(shape, kind) for kind in kinds))
        to, column = row[owner], start[owner] + at
        rows.tokens[to[kept], column[kept]] = flat[kept]
        rows.segments[to[kept], column[kept]] = (_ranges(0 * counts, counts) + 1)[owner[kept]]
        chosen = kept & agent & (at > 0)  # a token is chosen at the position before it
        where = to[chosen], column[chosen] - 1
        rows.is_action[where], rows.closes[where] = True, (is_last & self._closes[piece])[chosen]
        rows.reward[where] = reward[chosen]
        lost, terminal = agent & (at >= width), self._terminal[episodes]
        losses = np.bincount(owner[lost], minlength=len(episodes))
        ends = np.where(terminal, TERMINAL, UNFINISHED)
        is_long = (lengths > width) & (not self._keep_end)
        cut = is_long & ((losses > 0) | ~terminal)  # not if only a last text of the environment is lost
        ends[cut] = np.where(agent[(np.cumsum(lengths) - lengths + width)[cut]], UNFINISHED, CUT)
        rows.end[row, start + sizes - 1] = ends
        # No token is chosen at the last position of a cut row, so that position has no other reward.
        later = reward[lost] * self._discount ** _ranges(0 * losses, losses)
        rows.reward[row[cut], width - 1] = np.bincount(owner[lost], later, len(episodes))[cut]
        return rows

    def tokens(self, episode: int) -> list[int]:
        return self._flat(np.array([episode]))[0].tolist()

    def emitted(self) -> np.ndarray:
        """The distinct tokens of the agent's texts and of their end mark, ascending. [N] int32"""
        pieces = np.unique(np.append(self._pieces[self._agent], self._mark + ACTION_END))
        return np.unique(self._tokens[_ranges(self._starts[pieces], self._sizes[pieces])])

    def rewards_beyond(self, width: int) -> np.ndarray:
        """The number of rewards, but for zeros, that rows of this width cut off from each episode. [E]"""
        counts, starts = self._lasts - self._firsts, np.cumsum(self.lengths) - self.lengths
        starts = starts + self._skipped(self.lengths, width)
        stops = np.cumsum(self._sizes[self._pieces]) - np.repeat(starts, counts)  # of each piece, in its row
        episode, first = np.repeat(np.arange(len(counts)), counts), 2 * self._keep_end  # no token is chosen at 0
        return np.bincount(episode[((stops > width) | (stops < first)) & (self._reward != 0)], minlength=len(counts))

    def texts_before(self, episodes: np.ndarray, width: int) -> np.ndarray:
        """The number of the agent's texts of which rows of this width have no chosen token, at the start. [R]"""
        skipped = self._skipped(self.lengths[episodes], width)
        before = []
        for episode, skip in zip(episodes.tolist(), skipped.tolist(), strict=True):
            stops = np.cumsum(self._sizes[self._pieces[self._firsts[episode] : self._lasts[episode]]])
            before.append(int(self._closes[self._firsts[episode] : self._lasts[episode]][stops < skip + 2].sum()))
        return np.array(before, np.int64)

    def _skipped(self, lengths: np.ndarray, width: int) -> np.ndarray:
        """The number of tokens before the row, of episodes of these lengths."""
        return np.maximum(lengths - width, 0) * self._keep_end

    def agent_texts_with(self, token: int) -> int:
        """The number of the agent's turns that contain a token."""
        pieces = np.unique(np.searchsorted(self._starts, np.flatnonzero(self._tokens == token), "right") - 1)
        return int(np.isin(self._pieces[self._agent], pieces[pieces < self._mark]).sum())

    def _flat(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The concatenated tokens of episodes; the place of each one's piece; whether it is the piece's last. [N]"""
        places = _ranges(self._firsts[episodes], (self._lasts - self._firsts)[episodes])
        pieces = self._pieces[places]
        sizes = self._sizes[pieces]
        is_last = np.zeros(int(sizes.sum()), bool)
        is_last[np.cumsum(sizes)[sizes > 0] - 1] = True
        return self._tokens[_ranges(self._starts[pieces], sizes)], np.repeat(places, sizes), is_last

    def _check_pieces(self, strings: list[str], tokeniser: Tokeniser) -> None:
        """Compares some whole episodes with the tokens of their concatenated text; `strings`: of texts and marks."""
        for episode in np.unique(np.linspace(0, len(self._lasts) - 1, CHECKED_WHOLE).astype(int)).tolist():
            pieces = self._pieces[self._firsts[episode] : self._lasts[episode]].tolist()
            whole = "".join(strings[piece] for piece in pieces)
            # Texts that contain a mark are encoded without it, which nothing can be concluded from.
            texts = [strings[piece] for piece in pieces if piece < self._mark]
            if list(tokeniser.encode(whole, marks=True)) != self.tokens(episode) and all(
                list(tokeniser.encode(text, marks=True)) == list(tokeniser.encode(text)) for text in texts
            ):
                what = f"the tokeniser gives episode {episode:,} other tokens as a whole than text by text"
                raise UserError(f"{what}: choose a template whose marks it keeps apart ({FLAG})")


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`counts[i]` consecutive numbers from `starts[i]` on, for each i, one after another."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))


# Batches of episodes. The contents of a batch depend on the seed and the epoch alone.
#
# There are two layouts, both with few different shapes, because each shape is compiled:
#
# - buckets: one episode per row, in batches of similar lengths (`bucket_widths`).
# - packed: several episodes per row, one after another, each in its own segment; for short episodes of unequal lengths.
#
# Every episode appears once per epoch, so the last batches may have empty rows, whose segments are 0.

ROUND = 16  # widths are multiples of this
OPEN_ROWS = 64  # rows that are filled at the same time
PART = 256  # times the rows of a batch: episodes that are shuffled together, where an epoch goes in order


class PlannedBatch(NamedTuple):
    """The contents of a batch."""

    rows: list[list[int]]  # the episodes of each row
    width: int  # in tokens


EpochPlan = list[PlannedBatch]


def bucket_widths(lengths: np.ndarray, max_length: int) -> list[int]:
    """At most four ascending widths of buckets with about equally many episodes; the last fits every episode."""
    cut = np.minimum(lengths, max_length)
    quantiles = np.quantile(cut, (0.25, 0.5, 0.75, 1), method="higher")
    return sorted({min(-(-int(width) // ROUND) * ROUND, max_length) for width in quantiles})


def plan_buckets(
    episodes: np.ndarray, lengths: np.ndarray, widths: list[int], batch_rows: int, seed: int, epoch: int
) -> EpochPlan:
    """Plans batches of `batch_rows` rows with one of the `episodes` [N] each; `seed` and `epoch` determine the order.

    `lengths`: of all episodes, in tokens. [E]. `widths`: of the buckets, ascending. Longer episodes are cut.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(episodes)
    bucket = np.searchsorted(widths, np.minimum(lengths[order], widths[-1]))
    batches = []
    for number, width in enumerate(widths):
        batches += _cut([[episode] for episode in order[bucket == number].tolist()], width, batch_rows)
    return [batches[index] for index in rng.permutation(len(batches))]


def plan_packed(
    episodes: np.ndarray, lengths: np.ndarray, width: int, batch_rows: int, seed: int, epoch: int
) -> EpochPlan:
    """Plans batches of rows with several episodes each: an episode goes into the first open row with room for it.

    All rows have `width` tokens; longer episodes are cut, and fill a row. For the other arguments, see `plan_buckets`.
    """
    rng = np.random.default_rng((seed, epoch))
    rows: list[list[int]] = []
    closed: list[int] = []  # numbers of rows
    room: dict[int, int] = {}  # tokens left in each open row, the oldest row first
    for episode in rng.permutation(episodes).tolist():
        size = min(int(lengths[episode]), width)
        row = next((row for row, left in room.items() if left >= size), len(rows))
        if row == len(rows):
            if len(room) == OPEN_ROWS:
                closed.append(min(room, key=room.__getitem__))  # the fullest
                del room[closed[-1]]
            rows.append([])
            room[row] = width
        rows[row].append(episode)
        room[row] -= size
    rows = [rows[row] for row in (*closed, *room)]
    return _cut([rows[index] for index in rng.permutation(len(rows))], width, batch_rows)


def _cut(rows: list[list[int]], width: int, batch_rows: int) -> EpochPlan:
    """Cuts rows into batches; the last one is filled up with empty rows."""
    rows = rows + [[]] * (-len(rows) % batch_rows)
    return [PlannedBatch(rows[at : at + batch_rows], width) for at in range(0, len(rows), batch_rows)]


def make_batch(renderer: Renderer, plan: EpochPlan, step: int, share: slice = slice(None)) -> Rows:
    """One batch of a plan, or a host's `share` of its rows. [B, T] each"""
    return renderer.packed(plan[step].rows[share], plan[step].width)


def planner(
    renderer: Renderer, episodes: np.ndarray, *, packed: bool, max_length: int, batch_rows: int, seed: int,
    in_order: bool = False,
) -> Callable[[int], EpochPlan]:  # fmt: skip
    """A function from an epoch to its plan, for ascending `episodes` [N]; for more arguments see `plan_buckets`.

    `packed`: whether a row holds several episodes. `max_length`: tokens of a row, and so of an episode. `in_order`:
    whether early episodes come in early batches; then only PART * `batch_rows` at a time are shuffled.
    """
    lengths = renderer.lengths
    widths = bucket_widths(lengths[episodes], max_length)
    size = PART * batch_rows if in_order else len(episodes)

    def plan(epoch: int) -> EpochPlan:
        batches: EpochPlan = []
        for part in (episodes[start : start + size] for start in range(0, len(episodes), size)):
            if packed:
                batches += plan_packed(part, lengths, max_length, batch_rows, seed, epoch)
            else:
                batches += plan_buckets(part, lengths, widths, batch_rows, seed, epoch)
        return batches

    return plan


# Tokenises a conversation turn by turn, with the same result as `Renderer` gives for the recorded conversation.


class LiveRenderer:
    """Tokenises the turns of a conversation."""

    def __init__(self, tokeniser: Tokeniser, template: Template):
        """Raises UserError unless the agent's texts end with a single token, which stops generation."""
        self._encode = tokeniser.encode
        self._marks = encode_marks(tokeniser, template)
        if len(self._marks[ACTION_END]) != 1:
            hint = "choose the template words where tokens are words, marks where they are letters, else lines"
            count = len(self._marks[ACTION_END])
            raise UserError(f"the agent's text must end with one token, not {count}: {hint} ({FLAG})")
        (self.stop,) = self._marks[ACTION_END]

    def begin(self, heard: str) -> list[int]:
        """The tokens before the agent's first text; `heard` is the world's opening, or ""."""
        return [*self._marks[TEXT_START if heard else ACTION_START], *self.heard(heard)]

    def said(self, text: str) -> list[int]:
        return [*self._encode(text), self.stop]

    def heard(self, text: str) -> list[int]:
        """The tokens of the world's answer; empty for an empty answer."""
        return [*self._encode(text), *self._marks[TEXT_END]] if text else []

    def marks(self) -> set[int]:
        """The tokens of all marks except the end of the agent's texts, which the agent writes."""
        return {token for mark in self._marks for token in mark} - {self.stop}


class ConversationTokens:
    """The tokens of a conversation that a model reads.

    When little of the model's context is left, the conversation begins anew from the world's last text.
    """

    def __init__(self, renderer: LiveRenderer, heard: str, longest: int, max_tokens: int):
        """`longest`: tokens that the model reads; 0: any number. `max_tokens`: of a text of the agent.

        Little is less than `max_tokens`, and less than an eighth of the context.
        """
        self.tokens, self._renderer, self._heard = renderer.begin(heard), renderer, heard
        self._most = longest - min(max_tokens, longest // 8) if longest else sys.maxsize

    def context(self) -> list[int]:
        """The tokens before the agent's next text."""
        if len(self.tokens) > self._most:
            self.tokens = self._renderer.begin(self._heard)
        return self.tokens

    def said(self, tokens: list[int]) -> None:
        """Adds the tokens of a text of the agent, with its end mark."""
        self.tokens = self.tokens + tokens

    def heard(self, text: str) -> list[int]:
        """Adds a text of the world, and returns its tokens."""
        self._heard, tokens = text or self._heard, self._renderer.heard(text)
        self.tokens = self.tokens + tokens
        return tokens
