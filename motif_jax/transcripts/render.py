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


def spoken(turns: Turns) -> Turns:
    """Drops the environment's empty texts."""
    if "" not in turns.texts:
        return turns
    kept = turns.is_action | (turns.text != turns.texts.index(""))
    before = np.concatenate([[0], np.cumsum(kept)])
    starts, ends = before[turns.starts], before[turns.ends]
    columns = {"text": turns.text[kept], "is_action": turns.is_action[kept], "reward": turns.reward[kept]}
    return turns._replace(**columns, starts=starts, ends=ends)


class Renderer:
    """The tokens of all texts; `rows` concatenates them to episodes."""

    def __init__(
        self, turns: Turns, tokeniser: Tokeniser, template: Template, discount: float = 1.0, apart: bool = False
    ):
        """Tokenises all texts; raises UserError if the pieces' tokens differ from those of the whole text.

        `discount`: factor per token of the agent, for rewards that `rows` cuts off. `apart`: the tokens may differ,
        because the policy also reads the texts one by one when it plays.
        """
        texts = turns.texts
        turns = self._turns = spoken(turns)._replace(texts=[])  # texts take memory, and are needed only here
        self._encode, self._discount = tokeniser.encode, discount
        marks = encode_marks(tokeniser, template)
        pieces = [np.asarray(tokens, np.int64) for tokens in (*map(tokeniser.encode, texts), *marks)]
        flat = np.concatenate([np.zeros(0, np.int64), *pieces])
        if len(flat) and not 0 <= flat.min() <= flat.max() < tokeniser.size:
            raise UserError(f"texts have tokens up to {flat.max()}, the tokeniser has {tokeniser.size:,} ({FLAG})")
        self._tokens = flat.astype(np.int32)  # of texts, then of marks
        self._sizes = np.array([len(tokens) for tokens in pieces], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._mark = len(texts)  # index of the first mark's piece
        if not apart:
            self._check_pieces(texts, template)
        counts = turns.ends - turns.starts
        sizes = self._sizes[turns.text] + self._sizes[self._mark + TEXT_END - turns.is_action]
        before = np.concatenate([[0], np.cumsum(sizes)])
        last = np.where(turns.terminal, self._sizes[self._mark + EPISODE_END], 0)
        first = self._sizes[self._mark + self._start_marks(np.arange(len(counts)))]
        inner = before[turns.ends] - before[turns.starts]
        actions = np.concatenate([[0], np.cumsum(turns.is_action)])
        self.num_actions: np.ndarray = actions[turns.ends] - actions[turns.starts]  # of each episode. [E] int64
        self.lengths: np.ndarray = inner + first + last  # tokens per episode. [E] int64
        begins = turns.is_action.any() and not self._sizes[self._mark + ACTION_START] and self._agent_begins()
        if begins or not self.lengths.all() or not sizes[turns.is_action].all():
            raise UserError(
                f"with this template an episode or a text of the agent has no token, or no token before it ({FLAG})"
            )

    def rows(self, episodes: np.ndarray, width: int) -> Rows:
        """The tokens of episodes, one row each; longer ones are cut at their end. [R] -> [R, width]

        The last token of a cut row has the discounted sum of the rewards that were cut off.
        """
        flat, owner, agent, closes, reward = self._flat(episodes)  # [N] each
        lengths = self.lengths[episodes]
        at = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kept = at < width
        shape = len(episodes), width
        rows = Rows(*(np.zeros(shape, kind) for kind in (np.int32, np.int32, bool, bool, np.float32, np.int8)))
        where = owner[kept], at[kept]
        rows.tokens[where], rows.segments[where] = flat[kept], 1
        chosen = kept & agent & (at > 0)  # a token is chosen at the position before it
        where = owner[chosen], at[chosen] - 1
        rows.is_action[where], rows.closes[where], rows.reward[where] = True, closes[chosen], reward[chosen]
        lost = agent & ~kept
        losses, terminal = np.bincount(owner[lost], minlength=len(episodes)), self._turns.terminal[episodes]
        ends = np.where(terminal, TERMINAL, UNFINISHED)
        cut = (lengths > width) & ((losses > 0) | ~terminal)  # not if only a last text of the environment is lost
        ends[cut] = np.where(agent[(np.cumsum(lengths) - lengths + width)[cut]], UNFINISHED, CUT)
        rows.end[np.arange(len(episodes)), np.minimum(lengths, width) - 1] = ends
        # No token is chosen at the last position of a cut row, so that position has no other reward.
        before = np.concatenate([[0], np.cumsum(losses)])
        later = reward[lost] * self._discount ** (np.arange(int(lost.sum())) - before[owner[lost]])
        rows.reward[cut, width - 1] = np.bincount(owner[lost], later, len(episodes))[cut]
        return rows

    def tokens(self, episode: int) -> list[int]:
        return self._flat(np.array([episode]))[0].tolist()

    def emitted(self) -> np.ndarray:
        """The distinct tokens of the agent's texts and of their end mark, ascending. [N] int32"""
        turns = self._turns
        pieces = [*np.unique(turns.text[turns.is_action]).tolist(), self._mark + ACTION_END]
        ends = self._starts + self._sizes
        return np.unique(np.concatenate([self._tokens[self._starts[piece] : ends[piece]] for piece in pieces]))

    def agent_texts_with(self, token: int) -> int:
        """The number of the agent's turns that contain a token."""
        pieces = np.searchsorted(self._starts, np.flatnonzero(self._tokens == token), "right") - 1
        texts_of_agent = self._turns.text[self._turns.is_action]
        return int(np.isin(texts_of_agent, np.unique(pieces)).sum())

    def _agent_begins(self) -> bool:
        turns = self._turns
        has_tokens = np.flatnonzero(self._sizes[turns.text] + self._sizes[self._mark + TEXT_END - turns.is_action])
        first = np.searchsorted(has_tokens, turns.starts[turns.starts < turns.ends])
        return bool(turns.is_action[has_tokens[first[first < len(has_tokens)]]].any())

    def _start_marks(self, episodes: np.ndarray) -> np.ndarray:
        """The start mark of each episode, ACTION_START or TEXT_START. [R] -> [R]"""
        turns = self._turns
        first, empty = turns.starts[episodes], turns.ends[episodes] == turns.starts[episodes]
        padded = np.append(turns.is_action, True)  # an episode without turns begins with the agent's mark
        return np.where(empty | padded[first], ACTION_START, TEXT_START)

    def _flat(self, episodes: np.ndarray) -> tuple[np.ndarray, ...]:
        """The concatenated tokens of episodes; the row of each; whether it is the agent's; whether it ends an utterance
        of the agent; the reward of that utterance. [N] each
        """
        turns, mark = self._turns, self._mark
        starts, counts = turns.starts[episodes], (turns.ends - turns.starts)[episodes]
        terminal = turns.terminal[episodes]
        sizes = 1 + 2 * counts + terminal  # pieces of each episode
        firsts = np.cumsum(sizes) - sizes
        piece = np.empty(int(sizes.sum()), np.int64)
        agent, closes, reward = np.zeros(len(piece), bool), np.zeros(len(piece), bool), np.zeros(len(piece), np.float32)
        piece[firsts] = mark + self._start_marks(episodes)
        piece[(firsts + sizes - 1)[terminal]] = mark + EPISODE_END
        turn = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)  # within its episode
        number = np.repeat(starts, counts) + turn
        text_at = np.repeat(firsts, counts) + 1 + 2 * turn
        piece[text_at], piece[text_at + 1] = turns.text[number], mark + TEXT_END - turns.is_action[number]
        agent[text_at] = agent[text_at + 1] = turns.is_action[number]
        # An utterance closes with the last token of its end mark, or of its text if the mark is empty.
        last_piece = text_at + (self._sizes[piece[text_at + 1]] > 0)
        closes[last_piece], reward[last_piece] = turns.is_action[number], turns.reward[number]
        lengths = self._sizes[piece]
        last = np.cumsum(lengths) - 1
        spread = np.repeat(self._starts[piece] - (last + 1 - lengths), lengths) + np.arange(int(lengths.sum()))
        closing, rewards = np.zeros(len(spread), bool), np.zeros(len(spread), np.float32)
        closing[last[lengths > 0]], rewards[last[lengths > 0]] = closes[lengths > 0], reward[lengths > 0]
        owner = np.repeat(np.repeat(np.arange(len(episodes)), sizes), lengths)
        return self._tokens[spread], owner, np.repeat(agent, lengths), closing, rewards

    def _check_pieces(self, texts: list[str], template: Template) -> None:
        """Compares some whole episodes with the tokens of their concatenated text.

        Special tokens separate their neighbours, so templates with these need no check.
        """
        turns, marks = self._turns, [mark for mark in template if isinstance(mark, str)]
        if len(marks) < len(template):
            return
        for episode in np.unique(np.linspace(0, len(turns.ends) - 1, CHECKED_WHOLE).astype(int)).tolist():
            said = range(int(turns.starts[episode]), int(turns.ends[episode]))
            parts = [marks[int(self._start_marks(np.array([episode]))[0])]]
            for turn in said:
                parts += [texts[turns.text[turn]], marks[ACTION_END if turns.is_action[turn] else TEXT_END]]
            whole = "".join([*parts, marks[EPISODE_END] if turns.terminal[episode] else ""])
            # Texts that contain a mark are encoded without it, which nothing can be concluded from.
            names = [texts[turns.text[turn]] for turn in said]
            if list(self._encode(whole, marks=True)) != self.tokens(episode) and all(
                list(self._encode(name, marks=True)) == list(self._encode(name)) for name in names
            ):
                what = f"the tokeniser gives episode {episode:,} other tokens as a whole than text by text"
                raise UserError(f"{what}: choose a template whose marks it keeps apart ({FLAG})")


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
        inside = [[episode] for episode in order[bucket == number].tolist()]
        inside += [[]] * (-len(inside) % batch_rows)
        batches += [PlannedBatch(inside[at : at + batch_rows], width) for at in range(0, len(inside), batch_rows)]
    return [batches[index] for index in rng.permutation(len(batches))]


def plan_packed(
    episodes: np.ndarray, lengths: np.ndarray, width: int, batch_rows: int, seed: int, epoch: int
) -> EpochPlan:
    """Plans batches of rows with several episodes each: an episode goes into the first open row with room for it.

    All rows have `width` tokens; longer episodes are cut, and fill a row. For the other arguments, see `plan_buckets`.
    """
    rng = np.random.default_rng((seed, epoch))
    rows: list[list[int]] = []
    filling: list[list[int]] = []
    room: list[int] = []
    for episode in rng.permutation(episodes).tolist():
        size = min(int(lengths[episode]), width)
        open_row = next((index for index, left in enumerate(room) if left >= size), None)
        if open_row is None:
            if len(filling) == OPEN_ROWS:  # the fullest is closed
                fullest = int(np.argmin(room))
                rows.append(filling.pop(fullest))
                room.pop(fullest)
            filling.append([])
            room.append(width)
            open_row = len(filling) - 1
        filling[open_row].append(episode)
        room[open_row] -= size
    rows += filling
    rows = [rows[index] for index in rng.permutation(len(rows))]
    rows += [[]] * (-len(rows) % batch_rows)
    return [PlannedBatch(rows[at : at + batch_rows], width) for at in range(0, len(rows), batch_rows)]


def make_batch(renderer: Renderer, plan: EpochPlan, step: int, share: slice = slice(None)) -> Rows:
    """One batch of a plan, or a host's `share` of its rows. [B, T] each"""
    rows, width = plan[step].rows[share], plan[step].width
    flat = np.array([episode for row in rows for episode in row], np.int64)
    single = renderer.rows(flat, width)
    if all(len(row) == 1 for row in rows):
        return single
    packed = Rows(*(np.zeros((len(rows), width), array.dtype) for array in single))
    lengths = np.minimum(renderer.lengths[flat], width)
    index = 0
    for row, inside in enumerate(rows):
        start = 0
        for number, length in enumerate(lengths[index : index + len(inside)].tolist(), 1):
            for name, array in single._asdict().items():
                getattr(packed, name)[row, start : start + length] = array[index, :length]
            packed.segments[row, start : start + length] = number
            start, index = start + length, index + 1
    return packed


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
