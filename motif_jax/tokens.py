r"""Tokenisers: texts to token ids and back. Nothing here loads JAX.

A tokeniser is a file `tokenizer.json`, as on the Hugging Face Hub. Those whose tokens are words are read and written by
this file alone; all others need the library `tokenizers`. The built-in one, for small models that learn from scratch,
has the words and punctuation marks of given texts as its tokens:

    tokeniser = WordTokeniser.from_texts(["You see a red ball.", "turn left"])
    tokeniser.encode("turn left, ball")     # [10, 7, 2, 6]: "," was in no text, and so is unknown

For games of letters there is one whose tokens are letters, and marks such as `<g>`; it also has the marks that ILQL
sets between texts:

    tokeniser = LetterTokeniser.from_texts(["crane", "<b><y><g>"])
    tokeniser.encode("<a>cran</a>")         # [3, 11, 14, 10, 13, 5]
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from motif_jax.files import write_whole
from motif_jax.foreign import read_bytes
from motif_jax.structs import UserError

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
LARGEST = 2**27  # bytes of a tokenizer.json
WORDS = r"\w+|[^\w\s]"  # a word, or one other character; spaces only separate
LETTERS = r"<[/|]?\w+\|?>|[\s\S]"  # a mark, or one character
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"  # the first tokens, in this order
END_TOKEN, UNKNOWN_TOKEN = 1, 2
MARKS = ("<a>", "<s>", "</a>", "</eod>")  # the next ones of a tokeniser of letters


class Tokeniser(Protocol):
    """What models need of a tokeniser."""

    size: int  # token ids are below it
    text: str  # of its tokenizer.json

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """The tokens of a text. Special tokens are those that it puts around a text, such as an end of text."""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones."""


class BuiltInTokeniser:
    """Tokens are the pieces of texts that a pattern finds; subclasses say which."""

    pattern: str  # of a piece, as a regular expression; what it does not find only separates pieces
    first: tuple[str, ...]  # tokens that there always are; PAD, END, UNKNOWN begin
    end: str  # the token that ends a text
    between: str  # pieces when they are put together

    def __init__(self, words: Sequence[str]):
        """`words`: all tokens, in the order of their ids; those of `first` begin."""
        if tuple(words[: len(self.first)]) != self.first:
            raise ValueError(f"its first tokens are {list(words[:3])!s:.80}, and not {', '.join(self.first)}")
        self._words = tuple(words)
        self._ids = {word: index for index, word in enumerate(words)}
        self._special = {self._ids[word] for word in self.first if word != UNKNOWN}
        self.end_id = self._ids[self.end]
        self.size, self.text = len(words), self._write()

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Self:
        """The pieces of these texts, in alphabetical order."""
        words = {word for text in texts for word in re.findall(cls.pattern, text)}
        return cls([*cls.first, *sorted(words - {*cls.first})])

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """See `Tokeniser`."""
        found = [self._ids.get(word, UNKNOWN_TOKEN) for word in re.findall(self.pattern, text)]
        return [*found, self.end_id] if special_tokens else found

    def decode(self, tokens: Iterable[int]) -> str:
        """See `Tokeniser`."""
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
        text = {"Sequence": {"id": "A", "type_id": 0}}
        other = {"Sequence": {"id": "B", "type_id": 0}}
        after = {
            "type": "TemplateProcessing", "single": [text, end], "pair": [text, other, end],
            "special_tokens": {self.end: {"id": self.end, "ids": [self.end_id], "tokens": [self.end]}},
        }  # fmt: skip
        model = {"type": "WordLevel", "vocab": self._ids, "unk_token": UNKNOWN}
        whole = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": self.split(), "post_processor": after,
            "decoder": None if self.between else {"type": "Fuse"}, "model": model,
        }  # fmt: skip
        return json.dumps(whole, ensure_ascii=False, indent=1)


class WordTokeniser(BuiltInTokeniser):
    """Tokens are words and punctuation marks. Texts come back with single spaces between them."""

    pattern, first, end, between = WORDS, (PAD, END, UNKNOWN), END, " "


class LetterTokeniser(BuiltInTokeniser):
    """Tokens are characters, and marks in angle brackets. Texts come back as they were."""

    pattern, first, end, between = LETTERS, (PAD, END, UNKNOWN, *MARKS), "</a>", ""


class HubTokeniser:
    """Any tokenizer.json, by the library `tokenizers`."""

    def __init__(self, text: str):
        """From the content of the file."""
        if importlib.util.find_spec("tokenizers") is None:
            raise UserError(f"this {FILE} needs the library tokenizers: pip install 'motif_jax[language]'")
        import tokenizers

        self.text, self._tokenizer = text, tokenizers.Tokenizer.from_str(text)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        """See `Tokeniser`."""
        return self._tokenizer.encode(text, add_special_tokens=special_tokens).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """See `Tokeniser`."""
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True)


def digest(tokeniser: Tokeniser) -> str:
    """SHA-256 of what it is made from: of equal digests, tokens mean the same."""
    content = json.dumps(json.loads(tokeniser.text), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def read_tokeniser(file: Path) -> Tokeniser:
    """Reads a `tokenizer.json`; raises UserError, with one sentence, if it cannot be used."""
    try:
        text = read_bytes(file, LARGEST).decode()
        return tokeniser_from_text(text)
    except UserError as error:
        raise UserError(f"{str(file)!r}: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {str(file)!r}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"cannot read {str(file)!r} as a tokeniser: {' '.join(str(error).split())[:200]}") from error


def tokeniser_from_text(text: str) -> Tokeniser:
    """From the content of a `tokenizer.json`; raises ValueError if it is not one."""
    try:
        whole = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("model"), dict):
        raise ValueError("it has no model")
    for kind in (WordTokeniser, LetterTokeniser):
        words = _our_words(whole["model"], kind) if whole.get("pre_tokenizer") == kind.split() else None
        if words is not None and json.loads(kind(words).text) == whole:
            return kind(words)
    try:
        return HubTokeniser(text)
    except (UserError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library, which is written in Rust, is no Exception
        raise ValueError(str(error) or type(error).__name__) from error


def _our_words(model: dict[str, Any], kind: type[BuiltInTokeniser]) -> list[str] | None:
    """The words of a model that may have been written here, by their ids."""
    words = model.get("vocab")
    if not isinstance(words, dict) or list(words.values()) != list(range(len(words))):
        return None
    return list(words) if tuple(words)[: len(kind.first)] == kind.first else None


def write_tokeniser(directory: Path, tokeniser: Tokeniser) -> None:
    """Writes `tokenizer.json`, and what transformers needs beside it to load it."""
    write_whole(directory / FILE, lambda file: file.write(tokeniser.text.encode()))
    if isinstance(tokeniser, BuiltInTokeniser):
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": PAD,
            "eos_token": tokeniser.end,
            "unk_token": UNKNOWN,
        }
        text = json.dumps(settings, indent=1).encode()
        write_whole(directory / SETTINGS, lambda file: file.write(text))
