import base64
import json

import numpy as np
import pytest
import tokenizers
from conftest import refusal

from motif_jax.tokens import HubTokeniser, LetterTokeniser, WordTokeniser, digest, read_tokeniser, write_tokeniser

pytestmark = pytest.mark.quick
TEXTS = ["Goal of the agent: go to the red ball.", "You see a wall 3 steps left, a key", "aller à la clé", "x_1 = {y}"]
TOKENISER = WordTokeniser.from_texts(TEXTS)
GUESSES = LetterTokeniser.from_texts(["crane", "<b><y><g>", "a <|pad|> b\n"])
BOTH = pytest.mark.parametrize("tokeniser", [TOKENISER, GUESSES], ids=["words", "letters"])


@BOTH
def test_it_is_written_and_read_whole(tmp_path, tokeniser):
    write_tokeniser(tmp_path, tokeniser)
    again = read_tokeniser(tmp_path / "tokenizer.json")
    assert type(again) is type(tokeniser)
    assert (again.text, again.size, digest(again)) == (tokeniser.text, tokeniser.size, digest(tokeniser))
    assert digest(WordTokeniser.from_texts(TEXTS[:2])) != digest(TOKENISER)


@BOTH
def test_the_library_finds_the_same_tokens(tokeniser):
    theirs = HubTokeniser(tokeniser.text)
    assert theirs.size == tokeniser.size
    rng = np.random.default_rng(0)
    letters = list("abcdefgh ,.;:!?-_'\"(){}\n\tàéß1207<>/") + TEXTS + ["<b>", "</a>", "<|pad|>", "<<y>>"]
    for _ in range(300):
        text = "".join(rng.choice(letters, size=rng.integers(0, 20)))
        for special in (False, True):
            tokens = tokeniser.encode(text, special, marks=True)
            assert theirs.encode(text, special, marks=True) == tokens
        assert theirs.decode(tokens) == tokeniser.decode(tokens)


def byte_pairs(library):
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    letters = library.pre_tokenizers.ByteLevel.alphabet()
    return made, library.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False, initial_alphabet=letters
    )


def character_pairs(library):
    """Its pairs make up "</a>", which templates have as a mark."""
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.Metaspace()
    made.decoder = library.decoders.Metaspace()
    return made, library.trainers.BpeTrainer(special_tokens=["<s>"], min_frequency=1, show_progress=False)


def unigram(library):
    """A vocabulary as T5's: marks are the likeliest pieces of it."""
    made = library.Tokenizer(library.models.Unigram())
    made.normalizer = library.normalizers.NFKC()
    made.pre_tokenizer, made.decoder = library.pre_tokenizers.Metaspace(), library.decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    return made, library.trainers.UnigramTrainer(
        vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False
    )


NAMES = ["<s>", "</s>", "<a>", "</a>", "</eod>", "<|im_end|>", "<think>", "[INST]"]
KINDS = [byte_pairs, character_pairs, unigram]


@pytest.fixture(params=["words", "letters", *KINDS], ids=lambda kind: getattr(kind, "__name__", kind))
def marked(request):
    """A tokeniser, the ids of its marks by name, and the id of what it does not know."""
    if isinstance(request.param, str):
        kind = {"words": WordTokeniser, "letters": LetterTokeniser}[request.param]
        tokeniser = kind.from_texts([*TEXTS, *NAMES])
        return tokeniser, {name: number for number, name in enumerate(kind.first)}, 2
    made, trainer = request.param(tokenizers)
    made.train_from_iterator([*TEXTS, *NAMES, *" ".join(NAMES).replace(" ", "")], trainer)
    made.add_special_tokens(["<a>", "<|im_end|>"])
    made.add_tokens(["</eod>", "[INST]", tokenizers.AddedToken("<think>", normalized=True), "  ", "redball"])
    added = {token.content: number for number, token in made.get_added_tokens_decoder().items()}
    known = {name: number for name in NAMES if (number := made.token_to_id(name)) is not None}
    marks = {name: number for name, number in (added | known).items() if name not in ("  ", "redball")}
    unknown = getattr(made.model, "unk_token", None) or "<unk>"
    return HubTokeniser(made.to_str()), marks, made.token_to_id(unknown)


def test_a_text_never_has_a_mark(marked):
    tokeniser, marks, unknown = marked
    lossless = "letters" in str(type(tokeniser)).lower() or "ByteLevel" in tokeniser.text
    for name, number in marks.items():
        for text in (name, f"go{name}to", f"go {name} to", name * 3, f"<{name}>", "＜／ａ＞" + name):
            found = tokeniser.encode(text)
            assert not {*found} & ({*marks.values()} - {unknown}), text
            if lossless and "＜" not in text:
                assert tokeniser.decode(found) == text
        assert isinstance(tokeniser, WordTokeniser) or number in tokeniser.encode(name, marks=True)


def test_other_texts_have_the_same_tokens_as_ever(marked):
    tokeniser, _, _ = marked
    for text in (*TEXTS, "  go  to redball redballs", "<", "</", "a>", "<b>", "1 < 2 > 0", "é", ""):
        assert tokeniser.encode(text) == tokeniser.encode(text, marks=True)
        if isinstance(tokeniser, HubTokeniser):
            assert tokeniser._without_marks.encode(text, add_special_tokens=False).ids == tokeniser.encode(text)


@pytest.mark.parametrize("text", [
    "{}", "[" * 100_000, '{"model": {"type": "BPE"}}', TOKENISER.text[:-9],
    TOKENISER.text.replace("WordLevel", "Unigram"),
])  # fmt: skip
def test_a_file_that_lies_is_refused_in_one_sentence(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text(text)
    refusal(lambda: read_tokeniser(tmp_path / "tokenizer.json"), "tokenizer.json' as a tokeniser: ")


def tokenizer_json(**parts):
    """A tokenizer.json of the words a and b, with other parts."""
    model = {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "unk_token": "<unk>"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model, **empty, **parts})


def sequence(name, step, times):
    return {"type": "Sequence", name: [step] * times}


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
DOUBLE = {"type": "Replace", "pattern": {"Regex": ""}, "content": "a"}
UNTYPED = {"pattern": {"String": "a"}, "content": "a" * 10}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
TABLE = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(4) + b"a" * 1000).decode()}
TEMPLATE = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
TEMPLATE["single"] = [{"Sequence": {"id": "A", "type_id": 0}}] * 1000
NO_MODEL = {"merges": [], "vocab": {"a": 0, "b": 1}, "unk_token": "c"}


@pytest.mark.parametrize("part", [
    {"normalizer": sequence("normalizers", REPLACE, 3)}, {"normalizer": sequence("normalizers", DOUBLE, 30)},
    {"normalizer": {"normalizers": [UNTYPED, {"normalizers": [UNTYPED, UNTYPED]}]}}, {"normalizer": TABLE},
    {"pre_tokenizer": sequence("pretokenizers", BYTES, 30)}, {"post_processor": TEMPLATE},
    {"decoder": sequence("decoders", REPLACE, 3)},
])  # fmt: skip
def test_a_tokeniser_that_makes_gigabytes_of_a_short_text_is_refused(part, tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(**part))
    (name,) = part
    refusal(lambda: read_tokeniser(tmp_path / "tokenizer.json"), "tokenizer.json' as a tokeniser: ", f"its {name} may")


@pytest.mark.parametrize(("part", "message"), [
    ({"model": NO_MODEL | {"type": "WordLevel"}}, "cannot encode"), ({"model": NO_MODEL | {"type": "BPE"}}, "encode"),
    ({"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]}}, "cannot encode"),
    ({"decoder": {"type": "Strip", "content": "a", "start": 9, "stop": 9}}, "cannot decode"),
])  # fmt: skip
def test_a_tokeniser_that_cannot_encode_or_decode_is_refused_when_it_is_read(part, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(**part))
    refusal(lambda: read_tokeniser(tmp_path / "tokenizer.json"), "tokenizer.json' as a tokeniser: ", message)


def test_steps_that_tokenisers_have_are_not_refused():
    """As in CLIP's, Llama's and those of sentencepiece: only what grows a text without limit is refused."""
    texts = [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Prepend", "prepend": "_"}]
    texts += [{"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKC"}, {"type": "Lowercase"}]
    steps = {"normalizer": {"type": "Sequence", "normalizers": texts}, "pre_tokenizer": BYTES, "post_processor": BYTES}
    back = [{"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    back += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    steps["decoder"] = {"type": "Sequence", "decoders": back}
    assert HubTokeniser(tokenizer_json(**steps)).size == 3
