"""Writers of programs: a language model behind a server, or templates, which stand in for one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from motif_jax.annotation.client import PATH
from motif_jax.rewards.code.grammar import FUNCTIONS, NUMERIC
from motif_jax.rewards.code.names import MOMENT, NUMBER, Readable
from motif_jax.rewards.code.tokens import MOST_LEVELS, MOST_NODES
from motif_jax.system.http import HttpClient

MEANINGS = {  # of the functions, for a model
    "gained": "after the step less before it", "record": "how far it exceeds its best of the episode, otherwise 0",
    "rose": "true, and not before the step", "once": "true for the first time in the episode",
    "still": "the step has changed nothing", "says": "the caption of the step, or another text, contains this text",
    "at": "a cell of a grid, from 0", "any": "whether a cell is so", "count": "how many cells are so",
    "distance": "steps from the agent to the nearest such cell, 1000 without one", "min": "the least",
    "max": "the most", "abs": "without its sign",
}  # fmt: skip
FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
LONGEST = 4_000  # characters of an answer that are read
SHOWN = 40  # captions
AGAINST = re.compile(r"\b(never|not|no|without|avoid)\b|n't")
WORD = re.compile(r"[a-z]{3,}")
LITTLE = {"and", "for", "from", "prefer", "that", "the", "what", "with"}  # words of goals that captions have by chance


class Brief(NamedTuple):
    """The prompt of a writer, before it is put in words."""

    goal: str
    about: str  # the game
    readable: Readable
    captions: Mapping[str, int]  # with how often they were shown
    liked: Sequence[str]  # captions that the judge's preferred episodes have more often than the others, best first
    tried: Sequence[str] = ()  # programs so far
    ranges: Mapping[str, str] = {}  # of numbers, as recorded
    moments: Sequence[str] = ()  # recorded steps
    texts: Sequence[str] = ()  # recorded, of which a program may quote phrases; (): it may quote anything


class Attempt(NamedTuple):
    """A program of an earlier round, or one with an error, and the answer to it."""

    text: str
    said: str


class Writer(Protocol):
    """The interface of writers."""

    def propose(self, brief: Brief, earlier: Sequence[Attempt], number: int) -> str:
        """A program's text; `number` tells the proposals of a round apart."""

    def close(self) -> None:
        """Releases resources."""
        return


class ScriptedWriter(Writer):
    """Templates over the words of the goal, but for sentences against something.

    It knows nothing of games: it shows what the loop does without a model.
    """

    def propose(self, brief: Brief, earlier: Sequence[Attempt], number: int) -> str:
        """See `Writer`; revisions add captions of preferred episodes. A text is repeated only if all were tried."""
        texts = list(dict.fromkeys(self._revised(brief, earlier) if earlier else self._first(brief)))
        texts = [text for text in texts if text not in brief.tried] or texts
        return texts[number % len(texts)]

    def _first(self, brief: Brief) -> Iterator[str]:
        wishes = " ".join(part for part in re.split(r"[.;!]", brief.goal.lower()) if not AGAINST.search(part))
        words = set(WORD.findall(wishes)) - LITTLE
        numbers = {name: entry.type == NUMBER and entry.of == MOMENT for name, entry in brief.readable.entries.items()
                   if entry.type in NUMERIC and any(_alike(name, word) for word in words)}  # fmt: skip
        terms = [f"gained({name})" if changes else name for name, changes in numbers.items()]
        for name, term in zip(numbers, terms, strict=True):
            yield from (term, *([f"record({name})"] if numbers[name] else ()), f"{term} - 0.01 * still()")
        if brief.liked:
            yield " + ".join(f'once(says("{caption}"))' for caption in brief.liked)
        spoken = {word for caption in brief.captions for word in WORD.findall(caption.lower())}
        shown = sorted(words & spoken)
        for word in shown:
            yield from (f'once(says("{word}"))', f'says("{word}")')
        for term, word in itertools.product(terms[:2], shown[:2]):
            yield f'{term} + 0.1 * says("{word}")'
        yield "0 - 0.01 * still()"

    def _revised(self, brief: Brief, earlier: Sequence[Attempt]) -> Iterator[str]:
        without_comments = re.sub(r'("[^"\n]*")|#.*', r"\1", earlier[-1].text)
        program = " ".join(line.strip() for line in without_comments.splitlines()).strip()
        if "divide it" in earlier[-1].said:
            program = f"({program}) / 100"
            yield program
        for caption in brief.liked:
            yield f'{program} + 0.3 * once(says("{caption}"))'
            yield f'{program} + 0.3 * says("{caption}")'
        if "still()" not in program:
            yield f"{program} - 0.01 * still()"
        yield f"max({program}, 0)"


def _alike(name: str, word: str) -> bool:
    """Whether a name and a word begin with the same letters, as depth and deeper do."""
    return any(part[:4] == word[:4] for part in name.lower().removeprefix("event_").split("_") if len(part) > 2)


class ModelWriter:
    """A language model behind a server with OpenAI's chat completions."""

    def __init__(self, client: HttpClient, fields: Mapping[str, Any], held: bool):
        """`fields`: of each request, None removes one; `held`: whether they hold the model to the grammar."""
        self._client, self._fields, self._held = client, fields, held

    def propose(self, brief: Brief, earlier: Sequence[Attempt], number: int) -> str:
        """See `Writer`."""
        fields = {"messages": messages(brief, earlier, self._held), "seed": number, **self._fields}
        body = {name: value for name, value in fields.items() if value is not None}
        return self._client.post(PATH, read_reply, json=body)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


def read_reply(reply: Any) -> str:
    """The program in a reply: what is between the first fences, or all of it."""
    text = reply["choices"][0]["message"]["content"]
    if not isinstance(text, str):
        raise ValueError("no text")
    fenced = FENCE.search(text[:LONGEST])
    return (fenced[1] if fenced else text[:LONGEST]).strip()


def messages(brief: Brief, earlier: Sequence[Attempt], held: bool = False) -> list[dict[str, str]]:
    """The conversation: the language, the world and the goal, then earlier programs with the answers to them.

    A model that is `held` to the grammar cannot write fences.
    """
    fence, where = ("{}", "") if held else ("```\n{}\n```", ", between ``` and ```")
    functions = "\n".join(f"- {function.usage}: {MEANINGS[name]}" for name, function in FUNCTIONS.items())
    names = "\n".join(f"- {name}: a {entry.type} of a {entry.of}" for name, entry in brief.readable.entries.items())
    captions = "\n".join(f"- {caption} ({count} times)" for caption, count in brief.captions.items())
    system = (
        "You write rewards for an agent that learns to play a game. A reward is one expression in a small language, "
        "which is computed at each step. Answer with the expression alone"
        f"{where}.\n\n"
        f"Functions:\n{functions}\n\nAlso + - * / < <= > >= == != and or not, numbers, and texts in double quotes. "
        f"Division is by a number only. At most {MOST_NODES} names, numbers and operators, and {MOST_LEVELS} levels. "
        "Good rewards pay about 1 for what matters, little for small steps towards it, and nothing for standing still."
    )
    user = (
        f"The game: {brief.about}\n\nThe goal: {brief.goal}\n\nNames that can be read:\n{names}\n\n"
        f"Captions that random play has seen:\n{captions}\n\nWrite a reward for this goal."
    )
    conversation = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    for attempt in earlier:
        conversation.append({"role": "assistant", "content": fence.format(attempt.text)})
        conversation.append({"role": "user", "content": f"What came of it:\n{attempt.said}\n\nWrite a better one."})
    return conversation
