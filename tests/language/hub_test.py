"""Directories of language models: read as written, and every lie in them refused in one sentence."""

import contextlib
import json
import os

import jax
import ml_dtypes
import numpy as np
import pytest
from conftest import change_json, refusal
from flax import nnx
from own_models import make_own, same, write_own
from safetensors.numpy import load_file, save_file

from motif_jax.language import hub
from motif_jax.language.hub import (
    CONFIG,
    INDEX,
    TENSORS,
    check_language_model,
    read_config,
    read_language_model,
    write_language_model,
)
from motif_jax.language.model import Types
from motif_jax.names import READERS
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
NORM = "transformer.h.1.ln_1.weight"


def change(directory, edit):
    file = directory / TENSORS
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "t5", "t5 v1.0"])
@pytest.mark.parametrize("shard_bytes", [10**9, 20_000])
def test_a_model_is_read_as_written(name, shard_bytes, tmp_path):
    write_own(name, tmp_path, shard_bytes=shard_bytes)
    assert (tmp_path / INDEX).exists() == (shard_bytes < 10**9)
    _, params, config = read_language_model(tmp_path)
    assert config == make_own(name).config
    assert same(params, nnx.state(make_own(name)))
    refusal(lambda: write_language_model(tmp_path, make_own(name)), "already: choose another directory")


def test_tensors_of_other_types_and_names_are_taken(tmp_path):
    """Sixteen bits; names without the prefix that a model without its head lacks; buffers of older versions."""
    write_own("gpt2", tmp_path)

    def edit(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name).astype(ml_dtypes.bfloat16)
        tensors["h.0.attn.bias"] = np.zeros((1, 1, 8, 8), bool)
        tensors["lm_head.weight"] = tensors["wte.weight"]

    change(tmp_path, edit)
    _, params, _ = read_language_model(tmp_path)
    rounded = jax.tree.map(
        lambda leaf: np.asarray(leaf).astype(ml_dtypes.bfloat16).astype(np.float32), nnx.state(make_own("gpt2"))
    )
    assert same(params, rounded)
    bits = np.dtype(ml_dtypes.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(read_language_model(tmp_path, Types(bits, bits))[1])} == {bits}


@pytest.mark.parametrize(("edit", "sentence"), [
    (lambda t: t.pop(NORM), f"1 tensors in .* the shape of '{NORM}' is None"),
    (lambda t: t.update(extra=np.zeros(3, np.float32)), "the shape of 'transformer.extra' is .3., not None"),
    (lambda t: t.update({NORM: np.zeros(31, np.float32)}), rf"{NORM}' is \[31\], not \[32\]"),
    (lambda t: t.update({NORM: np.zeros(32, np.int32)}), "has type I32, but must have F32"),
    (lambda t: t[NORM].__setitem__(5, np.nan), f"{NORM} in '.*' has a value that is not finite"),
    (lambda t: t.update({"h.1.ln_1.weight": np.zeros(32, np.float32)}), "is not the same as"),
])  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_in_one_sentence(edit, sentence, tmp_path):
    write_own("gpt2", tmp_path)
    change(tmp_path, edit)
    refuse(tmp_path, sentence)


def refuse(directory, sentence):
    refusal(lambda: read_language_model(directory), match=sentence)


def test_a_head_of_its_own_is_found(tmp_path):
    """Whatever the config says; but where it says that there is one, it must be there."""
    write_own("gpt2", tmp_path)
    change(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"] * 2}))
    assert not read_language_model(tmp_path)[2].tied
    write_own("t5", tmp_path / "t5")
    change(tmp_path / "t5", lambda tensors: tensors.pop("lm_head.weight"))
    refuse(tmp_path / "t5", "the shape of 'lm_head.weight' is None")


@pytest.mark.parametrize(("values", "sentence"), [
    ({"model_type": "bert"}, "its model_type must be one of gpt2.*, not 'bert'"),
    ({"n_layer": 10**9}, "its layers is 1000000000, which is not supported"),
    ({"n_layer": 2.0}, "its layers is 2.0"),
    ({"layer_norm_epsilon": float("nan")}, "its epsilon is nan"),
    ({"n_layer": None}, "KeyError.'n_layer'"),
    ({"n_embd": 30}, "do not fit the gpt2 of its config"),
    ({"vocab_size": 39}, r"wte.weight' is \[40, 32\], not \[39, 32\]"),
    ({"eos_token_id": 40}, "its ends is .40,., which is not supported"),
    ({"activation_function": "swish"}, "its activation is 'swish', which is not supported"),
    ({"scale_attn_by_inverse_layer_idx": True}, "not supported"),
    ({"partial_rotary_factor": 0.5}, "its partial_rotary_factor is 0.5, which is not supported"),
])  # fmt: skip
def test_a_config_that_does_not_fit_is_refused(values, sentence, tmp_path):
    write_own("llama" if "partial_rotary_factor" in values else "gpt2", tmp_path)
    change_json(tmp_path / CONFIG, **values)
    refuse(tmp_path, sentence)


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "\xff"])
def test_a_config_that_is_not_json_is_refused(text, tmp_path):
    (tmp_path / CONFIG).write_bytes(text.encode("latin-1"))
    refuse(tmp_path, "cannot (read|build)")


def test_further_ends_are_read(tmp_path):
    write_own("gpt2", tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 1]}')
    assert read_config(tmp_path).ends == (1, 7)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [-7]}')
    refuse(tmp_path, "its ends is")


def test_missing_files_are_named(tmp_path):
    refuse(tmp_path / "none", "there is no directory '.*none'; language models are not downloaded")
    refuse(tmp_path, "there is no config.json in")
    write_own("gpt2", tmp_path / "a")
    (tmp_path / "a" / TENSORS).rename(tmp_path / "a" / "pytorch_model.bin")
    refuse(tmp_path / "a", "neither model.safetensors nor .*'pytorch_model.bin' is a pickle")
    (tmp_path / "a" / TENSORS).write_bytes((2**40).to_bytes(8, "little") + b"{}")
    refuse(tmp_path / "a", "cannot read '.*header too large")
    (tmp_path / "a" / TENSORS).unlink()
    os.mkfifo(tmp_path / "a" / TENSORS)
    refuse(tmp_path / "a", "cannot read .*it is not a regular file")


def test_a_model_with_an_adapter_that_no_reader_knows_is_not_read_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "READERS", {"gguf": READERS["gguf"]})
    write_own("gpt2", tmp_path)
    read_language_model(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    sentence = "has an adapter, 'adapter_config.json', which no reader of adapters that is installed reads"
    refuse(tmp_path, sentence)
    refusal(lambda: check_language_model(str(tmp_path), "--config.language.model"), sentence, "--config.language.model")


def test_an_invalid_index_is_refused(tmp_path):
    write_own("gpt2", tmp_path, shard_bytes=20_000)
    tensor, file = sorted(json.loads((tmp_path / INDEX).read_text())["weight_map"].items())[0]
    for name in (5, "../../etc/passwd.safetensors", f"./{file}"):
        change_json(tmp_path / INDEX, weight_map={tensor: name})
        refuse(tmp_path, f"there is no {name} in|must name files beside it")
    change_json(tmp_path / INDEX, weight_map={tensor: file})
    refuse(tmp_path, "do not fit the gpt2")


def test_links_may_lead_to_the_cache_of_the_hub_only(tmp_path):
    snapshot, blobs = tmp_path / "models--x/snapshots/0", tmp_path / "models--x/blobs"
    write_own("gpt2", snapshot)
    blobs.mkdir()
    for name in (CONFIG, TENSORS):
        (snapshot / name).rename(blobs / name)
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert same(read_language_model(snapshot)[1], nnx.state(make_own("gpt2")))
    (blobs / TENSORS).rename(tmp_path / "elsewhere")
    (snapshot / TENSORS).unlink()
    (snapshot / TENSORS).symlink_to(tmp_path / "elsewhere")
    refuse(snapshot, "is a link that leads out of its directory")


def test_changed_bytes_are_refused_or_read(tmp_path):
    write_own("gpt2", tmp_path)
    rng, file = np.random.default_rng(0), tmp_path / TENSORS
    whole = {path: path.read_bytes() for path in (tmp_path / CONFIG, file)}
    length = 8 + int.from_bytes(whole[file][:8], "little")
    for path, data in whole.items():
        for _ in range(25):
            changed = bytearray(data)
            changed[rng.integers(min(length, len(data)))] = rng.integers(256)
            path.write_bytes(changed)
            with contextlib.suppress(UserError):
                read_language_model(tmp_path)
        path.write_bytes(data)
