r"""Tokenisers: texts to token ids and back. Nothing here loads JAX.

A tokeniser is a file `tokenizer.json`, as on the Hugging Face Hub. Those whose tokens are words are read and written by
this file alone; all others need the library `tokenizers`. (It cuts some texts otherwise, as accents may be part of its
words, and it is slower on short texts.) The built-in one, for small models that learn from scratch, has the
words and punctuation marks of given texts as its tokens:

    tokeniser = WordTokeniser.from_texts(["You see a red ball.", "turn left"])
    tokeniser.encode("turn left, ball")     # [10, 7, 2, 6]: "," was in no text, and so is unknown

For games of letters there is one whose tokens are letters, and marks such as `<g>`; it also has the marks that ILQL
sets between texts:

    tokeniser = LetterTokeniser.from_texts(["crane", "<b><y><g>"])
    tokeniser.encode("<a>cran</a>", marks=True)     # [3, 11, 14, 10, 13, 5]

Tokens that end texts, or that stand between them, are marks. A text from outside that has "</a>" in it means these four
characters, and never the mark: only templates of this program are read with marks.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.util
import itertools
import json
import math
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from motif_jax.files import write_whole
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import read_bytes

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
LARGEST = 2**27  # bytes of a tokenizer.json
WORDS = r"\w+|[^\w\s]"  # a word, or one other character; spaces only separate
LETTERS = r"<[/|]?\w+\|?>|[\s\S]"  # a mark, or one character
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"  # the first tokens, in this order
END_TOKEN, UNKNOWN_TOKEN = 1, 2
MARKS = ("<a>", "<s>", "</a>", "</eod>")  # the next ones of a tokeniser of letters
STEPS = ("normalizers", "pretokenizers", "processors", "decoders")  # of the parts of a tokenizer.json, in lists
MOST_GROWTH = 256  # tokens, or characters, that all steps may make of one; NFKC alone makes 18 of some
STRANGE = "a\U0010fffd"  # a letter, and a character that is in no vocabulary
BRACKETS = re.compile(r"[<>\[\]{}|]")  # what a mark has in its name, but not a word that was added to a vocabulary


class BuiltInTokeniser:
    """Tokens are the pieces of texts that a pattern finds; subclasses say which. Token ids are below `size`."""

    pattern: str  # of a piece, as a regular expression; what it does not find only separates pieces
    first: tuple[str, ...]  # tokens that there always are; PAD, END, UNKNOWN begin
    end: str  # the token that ends a text
    between: str  # pieces when they are put together

    def __init__(self, words: Sequence[str]):
        """`words`: all tokens, in the order of their ids; those of `first` begin."""
        self._words = tuple(words)
        self._ids = {word: index for index, word in enumerate(words)}
        self._special = {self._ids[word] for word in self.first if word != UNKNOWN}
        self.end_id = self._ids[self.end]
        self.size, self.text = len(words), self._write()

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Self:
        words = {word for text in texts for word in cls._pieces(text)}
        return cls([*cls.first, *sorted(words)])

    @classmethod
    def _pieces(cls, text: str) -> list[str]:
        """The words of a text without marks; those that look like one fall into characters."""
        pieces = re.findall(cls.pattern, text)
        if {*cls.first}.isdisjoint(pieces):
            return pieces
        return [part for word in pieces for part in (word if word in cls.first else [word])]

    def encode(self, text: str, special_tokens: bool = False, marks: bool = False) -> list[int]:
        """The tokens of any text; with `special_tokens`, also some around it, such as an end of text.

        `marks`: where the text has the name of a mark, it is the mark; only for texts of this program.
        """
        words = re.findall(self.pattern, text) if marks else self._pieces(text)
        ids = [self._ids.get(word, UNKNOWN_TOKEN) for word in words]
        return [*ids, self.end_id] if special_tokens else ids

    def encode_pieces(self, pieces: Sequence[str]) -> list[int]:
        """The tokens of a text in pieces: of this program, where names of marks are marks, and foreign, by turns."""
        return [token for place, piece in enumerate(pieces) for token in self.encode(piece, marks=place % 2 == 0)]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones."""
        return self.between.join(self._words[token] for token in tokens if token not in self._special)

    @classmethod
    def split(cls) -> dict[str, Any]:
        """The entry of tokenizer.json by which these tokenisers are known."""
        return {"type": "Split", "pattern": {"Regex": cls.pattern}, "behavior": "Removed", "invert": True}

    def _write(self) -> str:
        special = [
            {"id": index, "content": self._words[index], "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False} for index in sorted(self._special)
        ]  # fmt: skip
        end = {"SpecialToken": {"id": self.end, "type_id": 0}}
        text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
        after = {
            "type": "TemplateProcessing", "single": [text, end], "pair": [text, other, end],
            "special_tokens": {self.end: {"id": self.end, "ids": [self.end_id], "tokens": [self.end]}},
        }  # fmt: skip
        whole = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": self.split(), "post_processor": after,
            "decoder": None if self.between else {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": self._ids, "unk_token": UNKNOWN},
        }  # fmt: skip
        return json.dumps(whole, ensure_ascii=False, indent=1)


class WordTokeniser(BuiltInTokeniser):
    """Tokens are words and punctuation marks. Texts come back with single spaces between them."""

    pattern, first, end, between = WORDS, (PAD, END, UNKNOWN), END, " "


class LetterTokeniser(BuiltInTokeniser):
    """Tokens are characters, and marks in angle brackets. Texts come back as they were."""

    pattern, first, end, between = LETTERS, (PAD, END, UNKNOWN, *MARKS), "</a>", ""


class HubTokeniser:
    """Any tokenizer.json, by the library `tokenizers`; with the methods of `BuiltInTokeniser`."""

    def __init__(self, text: str):
        if importlib.util.find_spec("tokenizers") is None:
            raise UserError(f"this {FILE} needs the library tokenizers: pip install 'motif_jax[language]'")
        _check_growth(json.loads(text))  # before the library applies the steps to the added tokens
        self.text, self._tokenizer = text, _from_text(text)
        numbers = sorted(self._tokenizer.get_vocab(with_added_tokens=True).values())
        self.size = 1 + max(numbers, default=-1)
        added = self._tokenizer.get_added_tokens_decoder().values()
        named = [token.content for token in added if token.special or BRACKETS.search(token.content)]
        ids = {mark: self._tokenizer.token_to_id(mark) for mark in (*named, PAD, END, *MARKS)}  # the last of templates
        self._marks = {number: mark for mark, number in ids.items() if number is not None}
        written = self.encode(STRANGE, special_tokens=True)
        for tokens in (numbers, written, numbers[:1], ()):  # some decoders fail in short texts
            self.decode(tokens)

    def encode(self, text: str, special_tokens: bool = False, marks: bool = False) -> list[int]:
        with _told(f"encode {text[:60]!r}"):
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            has_marks = not (marks or self._marks.keys().isdisjoint(ids))
            tokenizer = self._without_marks if has_marks else self._tokenizer
            if has_marks or special_tokens:
                ids = tokenizer.encode(text, add_special_tokens=special_tokens).ids
            return ids

    def encode_pieces(self, pieces: Sequence[str]) -> list[int]:
        with _told("encode a conversation"):
            tokenizer, secret = self._without_marks, self._secret_names
            known = re.compile("|".join(re.escape(mark) for mark in sorted(secret, key=len, reverse=True)) or r"(?!)")
            ours = [known.sub(lambda match: secret[match[0]], piece) for piece in pieces[::2]]
            mixed = itertools.chain.from_iterable(itertools.zip_longest(ours, pieces[1::2], fillvalue=""))
            return tokenizer.encode("".join(mixed), add_special_tokens=False).ids

    def decode(self, tokens: Iterable[int]) -> str:
        with _told("decode what was generated"):
            return self._tokenizer.decode(list(tokens), skip_special_tokens=True)

    @functools.cached_property
    def _secret_names(self) -> dict[str, str]:
        """Random strings in place of the marks; none is the beginning of another one."""
        secret = secrets.token_hex(8)
        return {name: f"\ue000{secret}{number}\ue001" for number, name in self._marks.items()}

    @functools.cached_property
    def _without_marks(self) -> Any:
        """Each mark is renamed to a random string, so a text that spells the old name is cut as ordinary text.

        The names stand in the vocabulary as well, where some models would find them even if they were not marks.
        """
        names = self._secret_names
        whole = json.loads(self._tokenizer.to_str())
        for token in whole["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        model = whole["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {names.get(word, word): number for word, number in model["vocab"].items()}
        else:  # Unigram: [[word, score], ...]
            model["vocab"] = [[names.get(word, word), score] for word, score in model["vocab"]]
        if model.get("unk_token"):
            model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
        if "merges" in model:
            model["merges"] = [pair for pair in model["merges"] if names.keys().isdisjoint((*pair, "".join(pair)))]
        return _from_text(json.dumps(whole))


Tokeniser = BuiltInTokeniser | HubTokeniser


def _check_growth(whole: dict[str, Any]) -> None:
    """Raises ValueError if a tokenizer.json of a few kilobytes could make gigabytes of a short text."""
    for parts in (("normalizer", "pre_tokenizer", "model", "post_processor"), ("decoder",)):
        if (growth := math.prod(_growth(whole.get(part)) for part in parts)) > MOST_GROWTH:
            names = " and ".join(part for part in parts if _growth(whole.get(part)) > 1)
            raise ValueError(f"its {names} may make {growth:.3g} characters of one, at most {MOST_GROWTH} are allowed")


def _growth(step: Any) -> float:
    """The most characters or tokens that a step makes of one; what it adds once to a text is not counted."""
    if not isinstance(step, dict):
        return 1.0
    made = math.prod((_growth(one) for name in STEPS for one in step.get(name) or ()), start=1.0)
    if {
        "pattern",
        "content",
    } <= step.keys():  # Replace; the library also guesses steps that have no type by their values
        least = len(step["pattern"].get("String", ""))  # 0 for a regular expression: it may find nothing, everywhere
        made *= max(1.0, len(step["content"]) / least) if least else 1.0 + len(step["content"])
    if step.get("type") == "ByteLevel":
        made *= 4.0  # each byte becomes a character, which may have two of them for the next such step
    if table := base64.b64decode(step.get("precompiled_charsmap") or ""):  # it ends with texts for single characters
        texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        made *= max(1, *(len(text.decode(errors="replace")) for text in texts))
    if "single" in step:  # a template of tokens around copies of the text
        made *= max(1, sum("Sequence" in one for one in step["single"]))
    return made * (1 + sum(len(step.get(name) or "") for name in ("continuing_subword_prefix", "end_of_word_suffix")))


def _from_text(text: str) -> Any:
    """A tokeniser of the library, which neither cuts texts nor fills them up."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turns errors of the library into a UserError; a panic of its code, which is Rust, is no Exception in Python."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"the tokeniser of the language model cannot {what}: {reason}") from error


def digest(tokeniser: Tokeniser) -> str:
    """SHA-256 of the tokenizer.json: tokenisers with equal digests give equal tokens."""
    content = json.dumps(json.loads(tokeniser.text), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def read_tokeniser(file: Path) -> Tokeniser:
    """Reads a `tokenizer.json`; raises UserError, with one sentence, if it cannot be used."""
    with legible(f"{str(file)!r} as a tokeniser", "", UserError):
        return tokeniser_from_text(read_bytes(file, LARGEST).decode())


def tokeniser_from_text(text: str) -> Tokeniser:
    """From the content of a `tokenizer.json`; raises UserError if it is not one."""
    with _told("be read"):
        whole = json.loads(text)
        words = whole["model"].get("vocab")
        for kind in (WordTokeniser, LetterTokeniser) if isinstance(words, dict) else ():
            if whole.get("pre_tokenizer") == kind.split() and tuple(words)[: len(kind.first)] == kind.first:
                built = kind([*words])
                if json.loads(built.text) == whole:  # it was written here
                    return built
        return HubTokeniser(text)


def write_tokeniser(directory: Path, tokeniser: Tokeniser) -> None:
    """Writes `tokenizer.json`, and what transformers needs beside it to load it."""
    write_whole(directory / FILE, tokeniser.text.encode())
    if isinstance(tokeniser, BuiltInTokeniser):
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD}
        settings |= {"eos_token": tokeniser.end, "unk_token": UNKNOWN}
        write_whole(directory / SETTINGS, json.dumps(settings, indent=1))
