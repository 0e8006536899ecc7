"""Writers of programs: a language model behind a server or in this process, or templates, which stand in for one."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from motif_jax.annotation.backends import MODEL_FLAG, read_json, server_key
from motif_jax.annotation.client import KEY, PATH, URL, find_model
from motif_jax.contrib.code_rewards.grammar import FUNCTIONS, MOST_LEVELS, MOST_NODES, NUMERIC, as_ebnf
from motif_jax.contrib.code_rewards.guide import ProgramGuide, is_plain, longest_phrase
from motif_jax.contrib.code_rewards.names import MOMENT, NUMBER, Readable
from motif_jax.contrib.code_rewards.sections import MODEL, PLAIN, SCRIPTED
from motif_jax.contrib.code_rewards.stage import WriteConfig
from motif_jax.structs import UserError, naming
from motif_jax.system.http import HttpClient

FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
LONGEST = 4_000  # characters of an answer that are read
MOST_TOKENS = 192  # of a program by a model in this process
MOST_SAID = 1_000  # characters of what came of a program, for such a model
MOST_CAPTIONS = 12  # for such a model; those of preferred episodes first
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


class ModelWriter(Writer):
    """A language model behind a server with OpenAI's chat completions."""

    def __init__(self, client: HttpClient, fields: Mapping[str, Any], held: bool):
        """`fields`: of each request, None removes one; `held`: whether they hold the model to the grammar."""
        self._client, self._fields, self._held = client, fields, held

    def propose(self, brief: Brief, earlier: Sequence[Attempt], number: int) -> str:
        fields = {"messages": messages(brief, earlier, self._held), "seed": number, **self._fields}
        body = {name: value for name, value in fields.items() if value is not None}
        return self._client.post(PATH, read_reply, json=body)

    def close(self) -> None:
        self._client.close()


def read_reply(reply: Any) -> str:
    """The program in a reply: what is between the first fences, or all of it."""
    text = reply["choices"][0]["message"]["content"][:LONGEST]
    fenced = FENCE.search(text)
    return (fenced[1] if fenced else text).strip()


def messages(brief: Brief, earlier: Sequence[Attempt], held: bool = False) -> list[dict[str, str]]:
    """The conversation: the language, the world and the goal, then earlier programs with the answers to them.

    A model that is `held` to the grammar cannot write fences.
    """
    fence, where = ("{}", "") if held else ("```\n{}\n```", ", between ``` and ```")
    functions = "\n".join(f"- {function.usage}: {function.meaning}" for function in FUNCTIONS.values())
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


# ---- in this process


class GuidedWriter(Writer):
    """A language model in this process, which chooses each token among those that the grammar allows."""

    def __init__(self, config: WriteConfig, readable: Readable):
        from motif_jax.language.generation import TokenSampling  # loads JAX
        from motif_jax.language.loaded import load_language

        model = config.annotate.model
        with naming(MODEL_FLAG):
            self._language = load_language(model)
        if self._language.config.is_encoder_decoder:
            raise UserError(f"{model!r} is an encoder-decoder: choose another model ({MODEL_FLAG})")
        tokeniser, self._chat = self._language.tokeniser, self._language.chat_format
        ends = [*self._language.config.ends, *(self._chat.end(tokeniser) if self._chat else ())]
        self.guide = ProgramGuide(readable, tokeniser, ends, self._language.config.vocabulary, model)
        self._config, self._sampling = config, TokenSampling(max(config.annotate.sampling.temperature, 0.7))
        self._round = -1  # programs before it
        self._written, self._asked = list[list[str]](), Counter[int]()  # in the current round; by number of a program

    def propose(self, brief: Brief, earlier: Sequence[Attempt], number: int) -> str:
        """See `Writer`; the programs of a round are written together, and so are those in place of refused ones."""
        if self._round != len(brief.tried):
            self._round, self._written, self._asked = len(brief.tried), [], Counter()
        attempt = self._asked[number]
        self._asked[number] += 1
        if attempt == len(self._written):
            self._written.append(self.write(brief, earlier, attempt))
        return self._written[attempt][number]

    def write(self, brief: Brief, earlier: Sequence[Attempt], attempt: int) -> list[str]:
        """Writes all programs of a round."""
        import jax

        key = jax.random.fold_in(jax.random.key(self._config.seed), len(brief.tried))
        keys = jax.random.split(jax.random.fold_in(key, attempt), self._config.code_rewards.proposals)
        row, guide = self._encode(talk(brief, earlier)), self.guide
        guide.begin(brief.texts)
        written = self._language.generate_guided(row, guide.allowed, MOST_TOKENS, keys, self._sampling, guide.ends)
        return [*map(guide.text, written)]

    def _encode(self, messages: list[dict[str, str]]) -> list[int]:
        tokeniser, most = self._language.tokeniser, self._language.config.max_positions
        if self._chat:
            row = self._chat.encode(tokeniser, messages)
        else:
            row = tokeniser.encode("\n".join([one["content"] for one in messages]) + "\n")
        if most and len(row) + MOST_TOKENS > most:
            raise UserError(
                f"what the writer is told has {len(row):,} tokens, and a program up to {MOST_TOKENS}, but the model "
                f"reads at most {most:,} ({MODEL_FLAG})"
            )
        return row


def talk(brief: Brief, earlier: Sequence[Attempt]) -> list[dict[str, str]]:
    """A conversation for small models: the language, the world, two examples with its names, and the goal."""
    functions = "\n".join(f"{function.usage}: {function.meaning}" for function in FUNCTIONS.values())
    names = ", ".join(f"{name} ({brief.ranges[name]})" if name in brief.ranges else name
                      for name in brief.readable.entries)  # fmt: skip
    captions = [f'"{longest_phrase(one)}"' for one in dict.fromkeys((*brief.liked, *brief.captions)) if is_plain(one)]
    system = "\n".join([
        f"You write rewards for a game, as one expression. The game: {brief.about}", f"Functions:\n{functions}",
        f"Names that can be read: {names}", "Captions of steps:", *captions[:MOST_CAPTIONS],
        "Recorded steps:", *brief.moments,
    ])  # fmt: skip
    messages = [{"role": "system", "content": system}]
    for goal, program in [*examples(brief), (brief.goal, "")]:
        messages.append({"role": "user", "content": f"Goal: {goal}\nReward:"})
        messages.append({"role": "assistant", "content": program})
    messages.pop()
    for attempt in earlier:
        messages.append({"role": "assistant", "content": attempt.text})
        said = f"What came of it:\n{attempt.said[:MOST_SAID]}\nA better reward for this goal:"
        messages.append({"role": "user", "content": said})
    return messages


def examples(brief: Brief) -> list[tuple[str, str]]:
    """Goals with programs, of captions of the world and of numbers that it has named; of others only at need.

    Small models repeat examples, so these must be worth repeating.
    """
    entries = brief.readable.entries
    names = dict.fromkeys((*brief.readable.still, *entries))  # the telling ones first
    numbers = [name for name in names if (entries[name].type, entries[name].of) == (NUMBER, MOMENT)]
    captions = [caption for caption in (*brief.liked, *brief.captions) if is_plain(caption) and caption.strip()]
    numbers = [name for name in numbers if entries[name].cell or not captions]
    still = " - 0.01 * still()" if brief.readable.still else ""
    pairs = [(f"more {name}, and no time wasted", f"gained({name}){still}") for name in numbers[:1]]
    pairs += [(f"a new best of {name}", f"record({name})") for name in numbers[-1:]]
    if seen := captions[:2]:  # two show how steps on the way are paid
        program = " + ".join(f'once(says("{longest_phrase(one)}"))' for one in seen)
        pairs.append((f"see {' and '.join(map(repr, seen))}", program))
    return pairs


def open_writer(config: WriteConfig, readable: Readable) -> Writer:
    """The writer that the config names."""
    if config.code_rewards.writer == SCRIPTED:
        return ScriptedWriter()
    if config.code_rewards.writer == MODEL:
        return GuidedWriter(config, readable)
    server, sampling = config.annotate.server, config.annotate.sampling
    client = HttpClient(server.url, URL, server.timeout_s, server.patience_s, server_key(server), KEY)
    grammar = {"grammar": as_ebnf(readable)}
    by_server: dict[str, dict[str, Any]] = {PLAIN: {}, "vllm": {"structured_outputs": grammar}, "llama.cpp": grammar}
    held = by_server[config.code_rewards.grammar]
    try:
        model = config.annotate.model or client.start(find_model(client, "", server.start_s)).result()
    except BaseException:
        client.close()
        raise
    fields = {"model": model, "max_tokens": sampling.max_tokens, "temperature": max(sampling.temperature, 0.7)}
    return ModelWriter(client, {**fields, **read_json(server.extra, "server.extra"), **held}, bool(held))
