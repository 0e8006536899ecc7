"""Low-rank adapters in PEFT's layout: PEFT finds our logits with our adapters, and we find its with its."""

import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import change_json, refusal
from flax import nnx
from gguf_models import make_model, write_gguf
from safetensors.numpy import load_file, save_file

from motif_jax.contrib.readers import peft as adapters
from motif_jax.contrib.readers.peft import ADAPTER, ADAPTER_CONFIG
from motif_jax.language import hub
from motif_jax.language.adapt import LowRank, add_low_rank, merge_low_rank
from motif_jax.language.config import make_config
from motif_jax.language.hub import read_language_model, write_language_model
from motif_jax.language.model import make_language_model
from motif_jax.structs import UserError

TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]], np.int32)
NAMES = {  # by family: matrices with additions
    "llama": ("q", "v", "down"), "gpt2": ("q", "v", "mlp.up"), "t5": ("cross.q", "decoder.blocks.attention.v", "o"),
}  # fmt: skip


def adapted(family):
    """A small model, and the same with additions that are not zero."""
    model = make_language_model(make_config(family, 16, 8, 2, 2), seed=0)
    low = add_low_rank(model, NAMES[family], 3, 6.0, seed=1)
    state = nnx.state(low, nnx.LoRAParam)
    rng = np.random.default_rng(0)
    nnx.update(low, nnx.map_state(lambda _, leaf: leaf.replace(jnp.asarray(rng.normal(size=leaf.shape) / 3)), state))
    return model, low


def logits_of(model):
    if model.config.family == "t5":
        segments = jnp.ones_like(TOKENS)
        return model.logits(model(TOKENS, segments, TOKENS[:, :4], segments[:, :4]))
    return model.logits(model(TOKENS, jnp.ones_like(TOKENS), None))


def theirs(family, base, adapter=None):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    kind = "AutoModelForSeq2SeqLM" if family == "t5" else "AutoModelForCausalLM"
    model = getattr(transformers, kind).from_pretrained(base, attn_implementation="eager").eval()
    if adapter is not None:
        peft = pytest.importorskip("peft", reason="needs PEFT, which needs PyTorch: pip install peft")
        model = peft.PeftModel.from_pretrained(model, adapter).eval()
    more = {"decoder_input_ids": torch.tensor(TOKENS[:, :4])} if family == "t5" else {}
    with torch.no_grad():
        return model(torch.tensor(TOKENS), **more).logits.numpy()


def written(family, folder):
    model, low = adapted(family)
    write_language_model(folder / "base", model)
    adapters.write_adapter(folder / "adapter", low, str(folder / "base"))
    return model, low


@pytest.mark.quick
def test_an_adapter_beside_a_model_is_read(tmp_path):
    """Beside a config alone, beside a model, and as an addition to this model."""
    _, low = written("llama", tmp_path)
    for name, base in (("config.json", "base"), ("model.safetensors", "base"), ("config.json", "adapter")):
        shutil.copy(tmp_path / "base" / name, tmp_path / "adapter")
        change(tmp_path, base_model_name_or_path=str(tmp_path / base))
        graph, params, _ = read_language_model(tmp_path / "adapter")
        np.testing.assert_allclose(logits_of(nnx.merge(graph, params)), logits_of(low), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", NAMES)
def test_peft_and_transformers_find_the_same_logits_and_we_read_them_back(family, tmp_path):
    model, low = written(family, tmp_path)
    graph, params, config = read_language_model(tmp_path / "adapter")
    assert config == hub.read_config(tmp_path / "adapter") == hub.read_config(tmp_path / "base")
    np.testing.assert_allclose(logits_of(nnx.merge(graph, params)), logits_of(low), atol=1e-5)
    assert abs(logits_of(low) - logits_of(model)).max() > 0.01
    np.testing.assert_allclose(theirs(family, tmp_path / "base", tmp_path / "adapter"), logits_of(low), atol=1e-4)
    write_language_model(tmp_path / "merged", merge_low_rank(low))
    np.testing.assert_allclose(theirs(family, tmp_path / "merged"), logits_of(low), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "more"), [
    ("llama", {"target_modules": ["q_proj", "up_proj"]}),
    ("llama", {"target_modules": "all-linear", "use_rslora": True}),
    ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
    ("t5", {"target_modules": ["q", "wo"], "rank_pattern": {"wo": 4}, "alpha_pattern": {"wo": 2}}),
])  # fmt: skip
def test_we_read_adapters_that_peft_writes(family, more, tmp_path):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    peft = pytest.importorskip("peft", reason="needs PEFT, which needs PyTorch: pip install peft")
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    write_language_model(tmp_path / "base", adapted(family)[0])
    kind = "AutoModelForSeq2SeqLM" if family == "t5" else "AutoModelForCausalLM"
    torch.manual_seed(0)
    task = "SEQ_2_SEQ_LM" if family == "t5" else "CAUSAL_LM"
    config = peft.LoraConfig(r=2, lora_alpha=3, init_lora_weights=False, task_type=task, **more)
    model = peft.get_peft_model(getattr(transformers, kind).from_pretrained(tmp_path / "base"), config)
    model.save_pretrained(tmp_path / "adapter")
    graph, params, _ = read_language_model(tmp_path / "adapter")
    wanted = theirs(family, tmp_path / "base", tmp_path / "adapter")
    np.testing.assert_allclose(logits_of(nnx.merge(graph, params)), wanted, atol=1e-4)


# ---- what is refused


def change(folder, **values):
    change_json(folder / "adapter" / ADAPTER_CONFIG, **values)


def change_tensors(folder, **values):
    file = folder / "adapter" / ADAPTER
    tensors = load_file(file)
    for name, array in values.items():
        tensors[next((one for one in tensors if one.endswith(name)), name)] = array
    save_file(tensors, file)


def add_to_tied_head(folder):
    """The embedding is also the head, whose copy in the file has an addition."""
    tensors = load_file(folder / "base/model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]}, folder / "base/model.safetensors")
    change_json(folder / "base/config.json", tie_word_embeddings=True)
    head = "base_model.model.lm_head.lora_{}.weight".format
    change_tensors(folder, **{head("A"): np.ones((2, 8), np.float32), head("B"): np.ones((16, 2), np.float32)})


def with_config(**values):
    return lambda folder: change(folder, **values)


def with_tensors(**values):
    return lambda folder: change_tensors(folder, **values)


OTHER, OURS = "base_model.model.x.lora_{}.weight".format, "layers.0.self_attn.q_proj.lora_{}.weight".format
A, B = np.ones((2, 8), np.float32), np.ones((8, 2), np.float32)
LONG = np.ones((1, 200_000), np.float16)
BAD = {
    "DoRA": (with_config(use_dora=True), "use_dora True: only low-rank products are read"),
    "PiSSA": (with_config(init_lora_weights="pissa"), "init_lora_weights 'pissa': only low-rank"),
    "a layer that occurs twice": (with_config(layer_replication=[[0, 1]]), "layer_replication [["),
    "additions from a text on": (with_config(alora_invocation_tokens=[5]), "alora_invocation_tokens [5]: only low"),
    "a head that is the embedding": (add_to_tied_head, "lm_head.lora_A.weight', which the model lacks"),
    "an adapter of an adapter": (
        lambda folder: shutil.copy(folder / "adapter" / ADAPTER_CONFIG, folder / "base"), "has an adapter of its own",
    ),
    "no alpha": (with_config(lora_alpha=None), "has not the expected form: "),
    "a name of the Hub": (with_config(base_model_name_or_path="meta/llama"), "not a directory here"),
    "a slow pattern": (with_config(alpha_pattern={"(a+)+$": 1}), "not a module's name"),
    "half of a pair": (with_tensors(**{OTHER("A"): A}), "which the model lacks"),
    "a matrix that the model lacks": (with_tensors(**{OTHER("A"): A, OTHER("B"): B}), "which the model lacks"),
    "infinite": (with_tensors(**{OURS("A"): np.full((3, 8), np.inf, np.float32)}), "not finite"),
    "a product of 149 GiB": (
        with_tensors(**{OURS("A"): LONG, OURS("B"): LONG.T.copy()}), "is [200000, 200000], the model's [8, 8]",
    ),
    "half of a file": (lambda folder: os.truncate(folder / "adapter" / ADAPTER, 60), "cannot read"),
    "a link": (
        lambda folder: ((folder / "adapter" / ADAPTER).rename(folder / "t"),
                        (folder / "adapter" / ADAPTER).symlink_to(folder / "t")),
        "leads out of its directory",
    ),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("what", BAD)
def test_other_files_are_refused(what, tmp_path):
    written("llama", tmp_path)
    spoil, sentence = BAD[what]
    spoil(tmp_path)
    refusal(lambda: read_language_model(tmp_path / "adapter"), sentence)


@pytest.mark.quick
def test_an_adapter_with_any_config_is_read_or_refused_with_one_sentence(tmp_path):
    written("llama", tmp_path)
    file, sentences = tmp_path / "adapter" / ADAPTER_CONFIG, []
    before = json.loads(file.read_text())
    for name in (*before, *adapters.LORA_PLAIN, "use_rslora"):
        for value in (None, -1, 10**400, float("nan"), "\ud800\0", ["q"], {"q": []}):
            file.write_text(json.dumps(before | {name: value}))
            try:
                read_language_model(tmp_path / "adapter")
            except UserError as error:
                sentences.append(str(error))
    assert len(sentences) > 40
    assert all(len(sentence.splitlines()) == 1 and len(sentence) < 500 for sentence in sentences)


@pytest.mark.quick
def test_an_adapter_of_a_file_is_added_to_it(tmp_path):
    """The same sums as with the adapter of the same model in a directory."""
    pytest.importorskip("gguf", reason="needs gguf: pip install motif_jax[language]")
    model = add_low_rank(make_model("llama"), ["q", "k", "up"], rank=2, alpha=4.0, seed=0)
    for _, module in nnx.iter_modules(model):
        if type(module) is LowRank:
            module.low_b = nnx.LoRAParam(jax.random.normal(jax.random.key(0), module.low_b.shape))
    hub.write_language_model(tmp_path / "merged", merge_low_rank(model))
    (tmp_path / "adapter").mkdir()
    adapters.write_adapter(tmp_path / "adapter", model, str(write_gguf(tmp_path / "m.gguf")))
    for base in (tmp_path / "m.gguf", "../m.gguf"):
        change_json(tmp_path / "adapter/adapter_config.json", base_model_name_or_path=str(base))
        _, params, config = hub.read_language_model(tmp_path / "adapter")
        merged = hub.read_language_model(tmp_path / "merged")[1]
        jax.tree.map(lambda ours, wanted: np.testing.assert_allclose(ours, wanted, atol=1e-6), params, merged)
        plain = hub.read_model_tokeniser(tmp_path / "m.gguf", config)
        assert hub.read_model_tokeniser(tmp_path / "adapter", config).encode("a") == plain.encode("a")
