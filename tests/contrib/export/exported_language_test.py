import numpy as np
import pytest
from conftest import run_stage
from glam_test import config_of, write_model

from motif_jax import load_language
from motif_jax.contrib.export import stage as export
from motif_jax.contrib.readers.peft import ADAPTER_CONFIG
from motif_jax.language.adapt import merge_low_rank
from motif_jax.language.loaded import Language
from motif_jax.policies.language_policy import language_of
from motif_jax.policies.model import read_policy
from motif_jax.stages import train_policy
from motif_jax.structs import UserError
from motif_jax.tokens import tokeniser_from_text


@pytest.mark.slow
def test_a_policy_s_additions_are_an_adapter_and_a_whole_model(tmp_path):
    directory = tmp_path / "model"
    write_model(directory)
    config = config_of(model=str(directory), lora_rank=2, max_tokens=248)
    config.policy.learning_rate = 0.1
    run_stage(train_policy, config, tmp_path)
    for kind in ("merged", "adapter"):
        config.export.language = kind
        run_stage(export, config, tmp_path)
    with pytest.raises(UserError, match=r"language-adapter' exists already, .* \(--config\.export\.to\)"):
        run_stage(export, config, tmp_path)

    model, metadata, _ = read_policy(tmp_path)
    prompts, names = ["Goal of the agent: go to the red ball", "You see a box"], ["turn left", "go forward"]
    before = load_language(directory, num_devices=1).score(prompts, names)
    made = [load_language(tmp_path / f"language-{kind}", num_devices=1) for kind in ("merged", "adapter")]
    merged, adapted = (one.score(prompts, names) for one in made)
    assert abs(merged - before).max() > 1e-3
    np.testing.assert_allclose(adapted, merged, atol=1e-5)
    whole = merge_low_rank(language_of(metadata["model"], model.params, model.frozen))
    theirs = Language(whole, tokeniser_from_text(metadata["model"]["language"]["tokeniser"])).score(prompts, names)
    np.testing.assert_allclose(merged, theirs, atol=1e-5)
    assert str(directory) in (tmp_path / "language-adapter" / ADAPTER_CONFIG).read_text()

    config = config_of(model=str(tmp_path / "language-adapter"), max_tokens=248)
    run_stage(train_policy, config, tmp_path / "again")
