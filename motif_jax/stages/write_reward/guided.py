"""A writer of programs that cannot write anything else: a language model in this process, held to the grammar.

At each token, it chooses among those after which the text can still become a program of this world (rewards/code/). A
program that is longer than LONGEST tokens is completed in the shortest way.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from motif_jax.annotation.backends import MODEL_FLAG
from motif_jax.language.generation import TokenSampling
from motif_jax.language.loaded import load_language
from motif_jax.rewards.code.grammar import FUNCTIONS
from motif_jax.rewards.code.names import MOMENT, NUMBER
from motif_jax.rewards.code.recogniser import Grammar
from motif_jax.rewards.code.spelling import ProgramGuide, Speller, is_plain, longest_phrase, pieces_of
from motif_jax.stages.write_reward import WriteConfig
from motif_jax.stages.write_reward.writers import MEANINGS, Attempt, Brief, Writer
from motif_jax.structs import UserError, naming

LONGEST = 144  # tokens of a program
SAID = 1_000  # characters of what came of a program
CAPTIONS = 12  # those of preferred episodes first


class GuidedWriter(Writer):
    """A language model in this process."""

    def __init__(self, config: WriteConfig, grammar: Grammar):
        with naming(MODEL_FLAG):
            self._language = load_language(config.annotate.model)
        if self._language.config.is_encoder_decoder:
            raise UserError(f"{config.annotate.model!r} is an encoder-decoder: choose another model ({MODEL_FLAG})")
        tokeniser, self._chat = self._language.tokeniser, self._language.chat_format
        self._ends = (*self._language.config.ends, *(self._chat.end(tokeniser) if self._chat else ()))
        self._grammar, self._model = grammar, config.annotate.model
        self._seed, self._count = config.seed, config.write_reward.proposals
        self._sampling = TokenSampling(max(config.annotate.sampling.temperature, 0.7))
        self._texts = list[str]()  # of the current round
        self._round = -1  # programs before it

    def propose(self, brief: Brief, earlier: Sequence[Attempt], number: int) -> str:
        """See `Writer`; the programs of a round are written together."""
        if self._round != len(brief.tried):
            key = jax.random.fold_in(jax.random.key(self._seed), len(brief.tried))
            row, guide = self._encode(talk(brief, earlier)), self.guide(brief.texts)
            keys = jax.random.split(key, self._count)
            written = self._language.generate_guided(row, guide, LONGEST, keys, self._sampling)
            self._texts = [guide.text(tokens, spelling) for tokens, spelling in written]
            self._round = len(brief.tried)
        return self._texts[number]

    def guide(self, texts: Sequence[str]) -> ProgramGuide:
        """Which tokens may follow; `texts`: see `Speller`."""
        language = self._language
        characters = {*pieces_of(language.tokeniser, self._ends)}
        speller = Speller(self._grammar, [text for text in texts if {*text} <= characters])
        return ProgramGuide(speller, language.tokeniser, self._model, self._ends, language.config.vocabulary)

    def _encode(self, messages: list[dict[str, str]]) -> list[int]:
        tokeniser, most = self._language.tokeniser, self._language.config.max_positions
        if self._chat:
            row = self._chat.encode(tokeniser, messages)
        else:
            row = tokeniser.encode("\n".join([one["content"] for one in messages]) + "\n")
        if most and len(row) + LONGEST > most:
            raise UserError(
                f"what the writer is told has {len(row):,} tokens, and a program up to {LONGEST}, but the model reads "
                f"at most {most:,} ({MODEL_FLAG})"
            )
        return row


def talk(brief: Brief, earlier: Sequence[Attempt]) -> list[dict[str, str]]:
    """A conversation for small models: the language, the world, two examples with its names, and the goal."""
    functions = "\n".join(f"{function.usage}: {MEANINGS[name]}" for name, function in FUNCTIONS.items())
    names = ", ".join(f"{name} ({brief.ranges[name]})" if name in brief.ranges else name
                      for name in brief.readable.entries)  # fmt: skip
    captions = [f'"{longest_phrase(one)}"' for one in dict.fromkeys((*brief.liked, *brief.captions)) if is_plain(one)]
    system = "\n".join([
        f"You write rewards for a game, as one expression. The game: {brief.about}", f"Functions:\n{functions}",
        f"Names that can be read: {names}", "Captions of steps:", *captions[:CAPTIONS],
        "Recorded steps:", *brief.moments,
    ])  # fmt: skip
    messages = [{"role": "system", "content": system}]
    for goal, program in [*examples(brief), (brief.goal, "")]:
        messages.append({"role": "user", "content": f"Goal: {goal}\nReward:"})
        messages.append({"role": "assistant", "content": program})
    messages.pop()
    for attempt in earlier:
        messages.append({"role": "assistant", "content": attempt.text})
        said = f"What came of it:\n{attempt.said[:SAID]}\nA better reward for this goal:"
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
