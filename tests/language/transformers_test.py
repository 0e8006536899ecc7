"""Beside transformers, in PyTorch: the same logits, gradients and tokens for every family; and files, both ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_models import ALL, compute_logits, logits_of, make_small, some_tokens

from motif_jax.devices.parameters import leaves_by_path
from motif_jax.language.config import config_from_hub, config_to_hub
from motif_jax.language.hub import parts_of, read_language_model, write_language_model
from motif_jax.language.model import relative_buckets

TOKENS, ANSWERS = some_tokens(), some_tokens(length=6, seed=1)
VALID = np.arange(11) < np.array([[11], [7], [9]])


def inputs(small):
    return (TOKENS, VALID, ANSWERS, np.ones_like(ANSWERS)) if small.is_encoder_decoder else (TOKENS, VALID)


def their_logits(theirs):
    import torch

    more = {"decoder_input_ids": torch.tensor(ANSWERS)} if theirs.config.is_encoder_decoder else {}
    return theirs(input_ids=torch.tensor(TOKENS), attention_mask=torch.tensor(VALID).long(), **more).logits


@pytest.mark.parametrize("name", ALL)
def test_logits_are_the_same(name):
    small = make_small(name)
    ours, theirs = logits_of(name, *inputs(small)), their_logits(small.theirs).detach().numpy()
    assert theirs.std() > 0.2
    where = slice(None) if small.is_encoder_decoder else VALID  # what they compute at padding is of no use
    np.testing.assert_allclose(ours[where], theirs[where], atol=3e-5 * np.abs(theirs).max(), rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen3", "flan"])
def test_gradients_are_the_same(name):
    """Of the mean log-probability of some tokens, in the tensors of their file."""
    import torch

    small = make_small(name)
    targets = (TOKENS if not small.is_encoder_decoder else ANSWERS)[:, ::-1].copy()
    weight = np.ones(targets.shape) if small.is_encoder_decoder else VALID

    def loss(params):
        odds = jax.nn.log_softmax(compute_logits(name, params, *inputs(small)))
        return (jnp.take_along_axis(odds, targets[..., None], -1)[..., 0] * weight).sum()

    ours = leaves_by_path(jax.jit(jax.grad(loss))(small.params))
    odds = torch.log_softmax(their_logits(small.theirs), -1)
    small.theirs.zero_grad()
    (torch.gather(odds, -1, torch.tensor(targets)[..., None])[..., 0] * torch.tensor(weight)).sum().backward()
    theirs = {name: parameter.grad.numpy() for name, parameter in small.theirs.named_parameters()}
    for part in parts_of(small.config, ours):
        wanted = part.ours(theirs[part.name])
        near = {"atol": 1e-4 * max(1, np.abs(wanted).max()), "rtol": 0, "err_msg": part.name}
        np.testing.assert_allclose(ours[part.path][part.index], wanted, **near)


@pytest.mark.parametrize("name", ALL)
def test_files_are_read_by_both(name, tmp_path):
    import transformers

    small = make_small(name)
    write_language_model(tmp_path / "one", small.model)
    assert config_from_hub(config_to_hub(small.config))._replace(tied=small.config.tied) == small.config
    kind = type(small.theirs)
    theirs, loading = kind.from_pretrained(tmp_path / "one", output_loading_info=True)
    assert [loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")] == [set()] * 3
    assert np.array_equal(their_logits(theirs).detach(), their_logits(small.theirs).detach())
    _, params, config = read_language_model(tmp_path / "one")
    assert config == small.config
    assert jax.tree.all(jax.tree.map(np.array_equal, params, small.params))
    assert transformers.AutoConfig.from_pretrained(tmp_path / "one").model_type == config.family


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_of_relative_positions_are_the_same(both_ways):
    torch = pytest.importorskip("torch", reason="needs PyTorch: bash launch/test.sh installs it")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="needs transformers")
    distances = np.arange(-600, 600)
    for buckets, most in ((32, 128), (16, 24), (64, 512)):
        wanted = t5.T5Attention._relative_position_bucket(torch.tensor(distances), both_ways, buckets, most)
        assert relative_buckets(jnp.asarray(distances), both_ways, buckets, most).tolist() == wanted.tolist()
