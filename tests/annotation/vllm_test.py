"""The real vLLM, with SmolLM2: `bash launch/test.sh --with-vllm` installs both and runs these."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, check_stage, free_port, get_config, is_complete
from scipy.special import expit, logit
from small_dataset import EVENTS, random_pairs, write_dataset

from motif_jax.annotation.annotator import Question
from motif_jax.language.config import SMOLLM2, locate_model
from motif_jax.language.loaded import load_language
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset, annotation_folder
from motif_jax.stages import annotate
from motif_jax.stages.annotate import make_backend
from motif_jax.structs import UserError

pytest.importorskip("vllm", reason="needs vLLM: bash launch/test.sh --with-vllm")
pytestmark = pytest.mark.vllm

SETTINGS = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process: quicker to start
    "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # no compiler at the first structured output
}  # fmt: skip
KV_CACHE = 256 << 20  # bytes; SmolLM2 needs 45 KiB per token
ENGINE = {  # with blocks so small that prefixes of some hundred tokens are found again
    "enforce_eager": True, "max_num_seqs": 64, "block_size": 32, "max_num_batched_tokens": 16384,
    "kv_cache_memory_bytes": KV_CACHE, "distributed_executor_backend": "uni",
}  # fmt: skip
THINGS = ("grid bug", "hill orc", "gnome lord", "floating eye", "soldier ant")
SENTENCES = ("You kill the {}!", "The {} bites!", "You miss the {}.", "You see here a {} corpse.", "You hear a {}.")
CAPTIONS = [*EVENTS, *(sentence.format(thing) for sentence in SENTENCES for thing in THINGS)]  # 35: 595 questions


@pytest.fixture(scope="session", autouse=True)
def settings():
    os.environ.update(SETTINGS)


@pytest.fixture(scope="session")
def model(settings, tmp_path_factory) -> Path:
    """SmolLM2 in the Hugging Face layout, which vLLM reads."""
    try:
        locate_model(SMOLLM2)
    except UserError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("models") / "small"
    load_language(SMOLLM2, num_devices=1).save(directory)
    return directory


@pytest.fixture(scope="session")
def server(model, tmp_path_factory):
    """vLLM's own server, on loopback."""
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", "float32"]
    command += ["--served-model-name", "small", "--host", "127.0.0.1", "--port", str(port), "--api-key", "open-sesame"]
    command += ["--max-model-len", "4096", "--enforce-eager", "--block-size", "32"]
    command += ["--kv-cache-memory-bytes", str(KV_CACHE)]
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
                break
            except OSError:
                assert process.poll() is None, log.read_text()[-3000:]
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def make_config(tmp_path: Path, **values):
    config = get_config()
    config.annotate.update(cache_dir=str(tmp_path / "answers"), goal="gold")
    config.annotate.sampling.max_tokens = 16
    config.annotate.vllm.update(dtype="float32", extra=json.dumps(ENGINE))
    config.update_from_flattened_dict({f"annotate.{name.replace('__', '.')}": value for name, value in values.items()})
    check_stage(annotate, config)
    return config


def run(tmp_path: Path, **values) -> tuple[PairDataset, str]:
    """The stage, with these values of the config; the dataset and the annotation's name."""
    if not (tmp_path / "dataset").exists():
        write_dataset(tmp_path / "dataset", random_pairs(300))
    config = make_config(tmp_path, **values)
    annotate.run(annotate.STAGE.view(config.to_dict()), tmp_path)
    assert is_complete(annotate, config, tmp_path)
    return PairDataset(tmp_path / "dataset"), annotate.label_name(config.annotate)


def probabilities(dataset: PairDataset, name: str) -> np.ndarray:
    return np.load(annotation_folder(dataset.path, name) / "prob.npy")


def test_labels_are_those_of_the_judge_in_this_process(model, tmp_path, monkeypatch):
    questions = [Question(*pair) for pair in itertools.islice(itertools.combinations(CAPTIONS, 2), 500)]
    values = {"model": str(model), "mode": "score", "prompt": "default"}
    configs = [make_config(tmp_path, backend=backend, **values) for backend in ("model", "vllm")]
    ours, theirs = (make_backend(annotate.STAGE.view(config.to_dict())).open() for config in configs)
    kept, read = [], ours._next
    monkeypatch.setattr(ours, "_next", lambda rows: kept.append(read(rows)) or kept[-1])
    labels = np.array([answer.yes for _, answer in ours.answers(questions)])
    first, second, neither = np.concatenate([np.exp(found).reshape(2, -1, 3) for found in kept], 1).transpose(2, 0, 1)
    z = np.log(second + neither / 2) - np.log(first + neither / 2)  # of each order. [2, 500]
    asked = [*questions, *(question.turned for question in questions)]
    their_z = logit([answer.yes for _, answer in theirs.answers(asked)]).reshape(2, -1)
    their_labels = expit((their_z[0] - their_z[1]) / 2)
    np.testing.assert_allclose(their_z, z, atol=3e-4)  # measured: 3e-5
    np.testing.assert_allclose(their_labels, labels, atol=1e-4)  # measured: 6e-6
    assert np.mean((their_labels > 0.5) == (labels > 0.5)) > 0.99  # measured: all
    assert np.ptp(labels) > 0.01


def test_a_server_gives_the_same_scores_as_the_engine_in_this_process(model, server, tmp_path, monkeypatch):
    dataset, name = run(tmp_path, backend="vllm", model=str(model), mode="score", tie_margin=0.001)
    assert name == "small_msg_gold_default_score"
    expected = probabilities(dataset, name)
    assert np.ptp(expected) > 0.01
    assert set(np.unique(dataset.preference(name))) == {0, 1, 2}
    record = json.loads((annotation_folder(dataset.path, name) / "merged.json").read_text())
    log = record["shards"]["answers-00000-of-00001"]
    assert log["asked"] == 2 * len(Questions(dataset, "msg"))
    assert log["output_tokens"] == log["asked"]  # one token each
    assert log["cached_tokens"] > 0.8 * log["prompt_tokens"]  # all but the captions

    monkeypatch.setenv("MOTIF_JAX_API_KEY", "open-sesame")
    values = {"mode": "score", "tie_margin": 0.001, "server__url": server, "server__prefill": True}
    dataset, served = run(tmp_path, backend="server", model="small", custom_name="served", **values)
    # The server shows only the 20 likeliest tokens, so rare spellings of a verdict are missing.
    np.testing.assert_allclose(probabilities(dataset, served), expected, atol=5e-3)
