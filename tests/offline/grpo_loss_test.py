"""The loss of grpo equals TRL's (GRPOTrainer._compute_loss), which runs in an environment of its own."""

import itertools
import json
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT

from benchmarks.peers.processes import PeerError, install
from motif_jax.offline.losses import Play, TranscriptBatch, Weights, next_tokens
from motif_jax.offline.recipes import GroupLearning
from motif_jax.offline.update import group_objective
from motif_jax.offline.values import ModelFunctions
from motif_jax.stages.train_values.learning import weights
from motif_jax.transcripts.render import Rows

ROWS, LENGTH, VOCABULARY, LIMIT = 6, 9, 5, 16
MEANS = {"episodes": "grpo", "tokens": "bnpo", "limit": "dr_grpo"}  # ours, and `loss_type`
LEVELS = {"token": "token", "episode": "sequence"}  # ours, and `importance_sampling_level`
CASES = [
    {"mean_over": mean, "ratio": ratio, "reference_coefficient": beta, "clip_low": low, "clip_high": high}
    for mean, ratio, beta, (low, high) in itertools.product(MEANS, LEVELS, (0.0, 0.3), ((0.2, 0.0), (0.1, 0.5)))
]


@pytest.fixture(scope="module")
def trl_python():
    try:
        return install("trl", ROOT / ".venv-peers") / "bin" / "python"
    except PeerError as error:
        pytest.skip(f"TRL cannot be installed: {error}")


def as_trl(case):
    values = {"loss_type": MEANS[case["mean_over"]], "importance_sampling_level": LEVELS[case["ratio"]]}
    values |= {"beta": case["reference_coefficient"], "epsilon": case["clip_low"], "scale_rewards": "group"}
    return values | {"epsilon_high": case["clip_high"] or case["clip_low"], "max_completion_length": LIMIT}


@pytest.mark.slow
def test_the_loss_is_trls(trl_python, tmp_path: Path):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (ROWS, LENGTH + 1)).astype(np.int32)
    is_action = np.zeros((ROWS, LENGTH + 1), bool)
    is_action[:, :LENGTH] = np.arange(LENGTH) < rng.integers(1, LENGTH + 1, ROWS)[:, None]
    empty = np.zeros(tokens.shape, np.float32)
    rows = Rows(tokens, np.ones_like(tokens), is_action, is_action & False, empty, empty.astype(np.int8))
    logits = {name: rng.normal(size=(*tokens.shape, VOCABULARY)).astype(np.float32) for name in ("now", "start")}
    odds = {name: array - np.log(np.exp(array).sum(-1, keepdims=True)) for name, array in logits.items()}
    log_probs = {name: np.take_along_axis(array, np.asarray(next_tokens(rows))[..., None], -1)[..., 0]
                 for name, array in odds.items()}  # fmt: skip
    written = log_probs["now"] + 0.4 * rng.normal(size=tokens.shape).astype(np.float32)
    advantage = rng.normal(size=(ROWS, 1)).astype(np.float32) + empty
    arrays = log_probs | {"written": written, "mask": is_action.astype(np.float32)}
    np.savez(
        tmp_path / "given.npz", advantage=advantage[:, 0], **{name: one[:, :LENGTH] for name, one in arrays.items()}
    )
    command = [trl_python, ROOT / "tests/offline/trl_losses.py", tmp_path / "given.npz"]
    done = subprocess.run([*command, json.dumps([*map(as_trl, CASES)])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = json.loads(done.stdout.splitlines()[-1])

    language = ModelFunctions(lambda params, *_: params, lambda params, hidden: hidden, VOCABULARY, VOCABULARY)
    policies = {name: jnp.asarray(array) for name, array in logits.items()}
    for case, loss in zip(CASES, wanted, strict=True):
        group = GroupLearning(**case)
        batch = TranscriptBatch(rows, play=Play(advantage, weights(is_action, group, LIMIT), written))
        objective = group_objective(language, group, 0)
        sums = objective.sums(Weights({"policy": policies["now"]}, {}, {"reference": policies["start"]}), batch)
        ours = sum(weight * float(sums[name]) for name, weight in objective.weights.items())
        assert ours == pytest.approx(loss, rel=1e-5, abs=1e-6), case
