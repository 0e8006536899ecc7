"""Tokenisers: words, as the library `tokenizers` has them; files that lie; what is missing."""

import json

import numpy as np
import pytest

from motif_jax.structs import UserError
from motif_jax.tokens import HubTokeniser, LetterTokeniser, WordTokeniser, digest, read_tokeniser, write_tokeniser

pytestmark = pytest.mark.quick
TEXTS = ["Goal of the agent: go to the red ball.", "You see a wall 3 steps left, a key", "aller à la clé", "x_1 = {y}"]
TOKENISER = WordTokeniser.from_texts(TEXTS)
GUESSES = LetterTokeniser.from_texts(["crane", "<b><y><g>", "a <|pad|> b\n"])
BOTH = pytest.mark.parametrize("tokeniser", [TOKENISER, GUESSES], ids=["words", "letters"])


def test_words_and_marks_are_tokens():
    tokeniser = WordTokeniser.from_texts(["go to the ball", "turn left."])
    assert tokeniser.encode("go left.") == [5, 6, 3]  # <pad> </s> <unk> . ball go left the to turn
    assert tokeniser.encode("go,left") == [5, 2, 6]
    assert tokeniser.encode(" go\n", special_tokens=True) == [5, 1]
    assert tokeniser.decode([0, 5, 6, 3, 1]) == "go left ."
    assert tokeniser.decode(tokeniser.encode("to the unseen")) == "to the <unk>"


def test_letters_and_marks_are_tokens_and_texts_come_back_as_they_were():
    tokeniser = LetterTokeniser.from_texts(["crane", "<b><y><g>"])
    assert tokeniser.encode("<a>cran</a>") == [3, 11, 14, 10, 13, 5]  # 7 to 9 are <b> <g> <y>
    assert tokeniser.encode("<b", special_tokens=True) == [2, 2, 5]
    for text in ("crane", "<b><b><y><g><g>"):
        assert tokeniser.decode(tokeniser.encode(f"<a>{text}</a></s></eod>")) == text


@BOTH
def test_it_is_written_and_read_whole(tmp_path, tokeniser):
    write_tokeniser(tmp_path, tokeniser)
    again = read_tokeniser(tmp_path / "tokenizer.json")
    assert type(again) is type(tokeniser)
    assert (again.text, again.size, digest(again)) == (tokeniser.text, tokeniser.size, digest(tokeniser))
    assert digest(WordTokeniser.from_texts(TEXTS[:2])) != digest(TOKENISER)


@BOTH
def test_the_library_finds_the_same_tokens(tokeniser):
    pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
    theirs = HubTokeniser(tokeniser.text)
    assert theirs.size == tokeniser.size
    rng = np.random.default_rng(0)
    letters = list("abcdefgh ,.;:!?-_'\"(){}\n\tàéß1207<>/") + TEXTS + ["<b>", "</a>", "<|pad|>", "<<y>>"]
    for _ in range(300):
        text = "".join(rng.choice(letters, size=rng.integers(0, 20)))
        for special in (False, True):
            tokens = tokeniser.encode(text, special)
            assert theirs.encode(text, special) == tokens
        assert theirs.decode(tokens) == tokeniser.decode(tokens)


def test_transformers_loads_what_is_written(tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    write_tokeniser(tmp_path, TOKENISER)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert theirs(TEXTS[0])["input_ids"] == TOKENISER.encode(TEXTS[0], special_tokens=True)
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id) == (0, 1, 2)


def test_a_tokeniser_of_another_kind_is_read_by_the_library(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    theirs.decoder = tokenizers.decoders.ByteLevel()
    theirs.train_from_iterator(TEXTS, tokenizers.trainers.BpeTrainer(vocab_size=300, show_progress=False))
    theirs.enable_truncation(3)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = read_tokeniser(tmp_path / "tokenizer.json")
    assert isinstance(ours, HubTokeniser)
    assert ours.decode(ours.encode(TEXTS[1])).strip() == TEXTS[1]
    assert ours.size == theirs.get_vocab_size()


def test_without_the_library_it_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    changed = json.loads(TOKENISER.text) | {"pre_tokenizer": {"type": "Whitespace"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
    with pytest.raises(UserError, match=r"needs the library tokenizers: pip install 'motif_jax\[language\]'"):
        read_tokeniser(tmp_path / "tokenizer.json")
    write_tokeniser(tmp_path, TOKENISER)
    assert read_tokeniser(tmp_path / "tokenizer.json").size == TOKENISER.size


@pytest.mark.parametrize("text", [
    "", "{}", "[]", "[" * 100_000, '{"model": 5}', '{"model": {"type": "BPE"}}', '{"version": "1.0", "model": {}}',
    TOKENISER.text[:-9],
    TOKENISER.text.replace("WordLevel", "Unigram"),
])  # fmt: skip
def test_a_file_that_lies_is_refused_in_one_sentence(text, tmp_path):
    pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"tokenizer\.json' as a tokeniser: ") as error:
        read_tokeniser(tmp_path / "tokenizer.json")
    assert len(str(error.value).splitlines()) == 1
