"""A policy that writes comments: cloned, valued and evaluated, as configs/ilql.py has it but tiny."""

import json

import numpy as np
import pytest
from byte_tokeniser import write_byte_tokeniser
from conftest import get_config

from motif_jax import experiment
from motif_jax.contrib.comments.world import comments
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json
from motif_jax.language.hub import write_language_model
from motif_jax.language.hub_config import make_config
from motif_jax.language.model import make_language_model
from motif_jax.policies.conversations import play_games
from motif_jax.policies.decoding import decodings_of
from motif_jax.policies.values import list_values, read_values
from motif_jax.policies.writing import ValueWriter
from motif_jax.stages.train_language.data import make_renderer
from motif_jax.transcripts.store import Transcripts, TranscriptWriter

TINY = {
    "collect.transcripts": 100, "language.width": 8, "language.layers": 1, "language.heads": 2,
    "train_language.batch_size": 8, "train_language.learning_rate": 1e-2, "train_language.warmup_steps": 2,
    "train_values.batch_size": 8, "decoding.kinds": "sample", "decoding.betas": "0,4",
    "decoding.batch_size": 8, "evaluate.episodes": 8, "evaluate.games_per_worker": 8, "evaluate.replays": "best",
    "transcripts.template": "lines", "train_values.games": 0, "decoding.max_tokens": 24,
}  # fmt: skip


@pytest.fixture(scope="module")
def comment(tmp_path_factory):
    """It begins as a directory of the Hub has GPT-2: tokens are bytes and pairs of them, and texts are lines."""
    folder = tmp_path_factory.mktemp("comments")
    size = write_byte_tokeniser(folder, [*comments("kind"), *comments("rude")], 340)
    write_language_model(folder, make_language_model(make_config("gpt2", size, 16, 1, 2, n_positions=256), seed=0))
    config = get_config("ilql.py", "comments,ilql")
    config.update_from_flattened_dict(TINY | {"language.model": str(folder)})
    experiment.run(config.to_dict(), folder / "run", ["collect", "train_language", "train_values", "evaluate"])
    return config, folder / "run"


def test_a_policy_is_trained_and_evaluated(comment):
    config, workdir = comment
    for folder in ("language", "values"):
        rows = [json.loads(line) for line in (workdir / folder / "metrics.jsonl").read_text().splitlines()]
        assert rows[-1]["valid_loss"] < rows[0]["valid_loss"]
    sweep = read_json(workdir / "evaluate/sweep.json")["rows"]
    written = [row for row in sweep if row["name"].startswith("values-")]
    assert [row["name"].rpartition("-")[2] for row in written] == ["beta0", "beta4"]
    assert {row["name"] for row in sweep} > set(config.evaluate.beside.split(","))
    for row in written:
        assert -10 <= row["return"]["low"] <= row["return"]["high"] <= 0
        assert len((workdir / f"evaluate/{row['name']}/episodes.jsonl").read_text().splitlines()) >= 8


def test_what_it_writes_is_made_of_what_the_agent_has_said(comment):
    """And is read back as it was written: a game that is recorded gives the tokens that were played."""
    config, workdir = comment
    store, (directory, steps) = Transcripts(workdir / "transcripts"), list_values(workdir)
    model, _ = read_values(directory, str(steps[-1]))
    said = {turn.text for number in range(len(store)) for turn in store.episode(number).turns if turn.is_action}
    (decoding, _) = decodings_of(config.decoding)
    games = play_games(make_world(config.env), ValueWriter(model), decoding, range(4), seed=1, stream=1)
    texts = [turn.text for game in games for turn in game.turns if turn.is_action]
    assert texts
    assert any(texts)
    assert set("".join(texts)) <= set("".join(said)) | {" "}
    assert "\n" not in "".join(texts)
    writer = TranscriptWriter()
    for game in games:
        writer.add(game)
    recorded = writer.write(workdir / "played", {})
    renderer = make_renderer(recorded, model.tokeniser, config.transcripts.template)
    for number, game in enumerate(games):
        first, *turns = game.turns
        live = model.renderer.begin(first.text)
        for turn in turns:
            live += model.renderer.said(turn.text) if turn.is_action else model.renderer.heard(turn.text)
        np.testing.assert_array_equal(renderer.tokens(number)[: len(live)], live)
