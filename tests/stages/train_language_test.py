import json
import shutil

import numpy as np
import pytest
from conftest import get_config, viewed

from motif_jax import experiment
from motif_jax.devices.hosts import Hosts
from motif_jax.files import read_json, read_lines
from motif_jax.stages.train_language.model import open_transcripts
from motif_jax.structs import UserError

TINY = {
    "language.width": 16, "language.layers": 1, "language.heads": 2, "train_language.batch_size": 8,
    "train_language.max_length": 32, "train_language.num_epochs": 6, "train_language.log_every": 5,
    "train_language.learning_rate": 1e-2, "train_language.warmup_steps": 3, "train_language.validation_share": 0.2,
}  # fmt: skip
COLOURS = ("red", "green", "blue")


def talks(file):
    """The agent repeats the colour that it is told; the second half of the games it does not, and is punished."""
    rng, lines = np.random.default_rng(0), []
    for number in range(60):
        said = [COLOURS[index] for index in rng.integers(0, 3, 3)]
        right = number < 30
        sequence = []
        for colour in said:
            answer = colour if right else COLOURS[rng.integers(3)]
            sequence += [[f"you see a {colour} ball.", 0], [f"take {answer}", 1]]
        reward = [0.0 if index % 2 == 0 else float(right) for index in range(6)]
        lines.append(json.dumps({"sequence": sequence, "reward": reward, "done": True}))
    file.write_text("\n".join(lines))
    return file


def config_for(tmp_path, **changes):
    return get_config(**TINY | {"transcripts.import_from": str(tmp_path / "talks.jsonl")} | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    talks(folder / "talks.jsonl")
    experiment.run(config_for(folder).to_dict(), folder / "run", ["train_language"])
    return folder


@pytest.mark.journey
def test_it_learns_to_say_what_the_agent_said(trained):
    summary = read_json(trained / "run/language/summary.json")
    rows = list(read_lines(trained / "run/language/metrics.jsonl"))
    valid = [row["valid_loss"] for row in rows if "valid_loss" in row]
    assert summary["best"]["valid_loss"] == min(valid) < 0.5 * valid[0]
    assert summary["best"]["valid_accuracy"] > 0.6
    assert {"policy", "accuracy", "gradient_norm", "loss"} <= rows[1].keys()


def test_a_trained_model_is_trained_further(trained, tmp_path):
    talks(tmp_path / "talks.jsonl")
    config = config_for(tmp_path, language__model=str(trained / "run/language/model"), train_language__num_epochs=1,
                        train_language__recipe="filtered_bc", train_language__best_share=0.5)  # fmt: skip
    experiment.run(config.to_dict(), tmp_path / "run", ["train_language"])
    first = next(read_lines(tmp_path / "run/language/metrics.jsonl"))
    assert first["valid_loss"] == pytest.approx(read_json(trained / "run/language/summary.json")["best"]["valid_loss"])
    assert read_json(tmp_path / "run/language/summary.json")["episodes"] == 24  # half of 48


@pytest.mark.quick
def test_transcripts_of_a_workdir_are_those_that_were_imported(tmp_path):
    other = shutil.copy(talks(tmp_path / "talks.jsonl"), tmp_path / "other.jsonl")
    open_transcripts(viewed(config_for(tmp_path), "train_language"), tmp_path / "run", Hosts())
    (tmp_path / "talks.jsonl").unlink()  # not needed again
    experiment.check(config_for(tmp_path).to_dict(), ["train_language"], tmp_path / "run")
    config = config_for(tmp_path, **{"transcripts.import_from": str(other)})
    with pytest.raises(UserError, match="has other transcripts"):
        experiment.run(config.to_dict(), tmp_path / "run", ["train_language"])
