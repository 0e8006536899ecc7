import numpy as np
import pytest
from conftest import assert_same_bits, get_config, is_complete, refusal, run_stage
from small_dataset import EVENTS, MANY, random_pairs, write_dataset

from motif_jax import load_reward
from motif_jax.captions import encode
from motif_jax.devices.checkpoints import reading
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.nethack.observations import scale_blstats
from motif_jax.files import read_json, read_lines
from motif_jax.rewards import preference
from motif_jax.stages import annotate, train_reward
from motif_jax.stages.train_reward.fitting import load_data
from motif_jax.structs import UserError


def settings(**values):
    config = get_config("quickstart.py")
    config.reward.update(labels="auto", batch_size=128, learning_rate=1e-3, num_epochs=3, message="lt_cnn_small")
    config.update_from_flattened_dict(values)
    return config


def view(**values):
    return train_reward.STAGE.view(settings(**values).to_dict())


def make_workdir(path, count: int = 1500, **dataset):
    write_dataset(path / "dataset", random_pairs(count, events=MANY, **dataset))
    run_stage(annotate, settings(), path)
    return path


def run(workdir, **values):
    config = settings(**{f"reward.{name}": value for name, value in values.items()})
    if not is_complete(train_reward, config, workdir):
        run_stage(train_reward, config, workdir)
    return read_json(workdir / "reward/statistics.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = make_workdir(tmp_path_factory.mktemp("trained"))
    run(workdir, num_epochs=8, learning_rate=3e-3)
    return workdir


@pytest.mark.journey
def test_it_learns_what_the_annotator_prefers(trained):
    summary = read_json(trained / "reward/statistics.json")
    first, last = summary["history"][0], summary["history"][-1]
    assert first["loss"] == pytest.approx(np.log(2), abs=0.01)
    assert last["accuracy"] > 0.95
    assert last["loss"] < 0.6 * first["loss"]
    kill, wall, death = load_reward(trained)(["You kill the newt! #1", "It's a wall. #2", "You die... #3"]).raw
    assert kill > wall > death


@pytest.mark.journey
def test_the_reward_reloads_without_the_dataset(trained):
    reward = load_reward(trained)
    assert reward.facts["epoch"] == 8
    summary = read_json(trained / "reward/statistics.json")
    assert reward.statistics.record() == summary["statistics"]
    # Texts, messages as NLE gives them, and the table agree.
    texts = [*EVENTS, "never seen before", "x" * 300]
    raw, normalised = reward(texts)
    np.testing.assert_allclose(reward(np.stack([encode(text) for text in texts])).raw, raw, atol=1e-6)
    np.testing.assert_allclose(normalised, (raw - reward.statistics.mean) / reward.statistics.variance**0.5, rtol=1e-5)
    table = reward.table()
    np.testing.assert_allclose(reward(reward.captions).raw, table.raw, atol=1e-5)
    assert reward([]).raw.shape == (0,)
    top, bottom = reward.top(5), reward.bottom(5)
    assert top[0].value == pytest.approx(table.normalised[reward.counts > 0].max())
    assert bottom[0].value == pytest.approx(table.normalised[reward.counts > 0].min())
    assert top[0].value > top[-1].value > bottom[-1].value > bottom[0].value
    # Statistics: over all moments of the training pairs.
    written_out = np.repeat(table.raw.astype(np.float64), reward.counts)
    assert reward.statistics.mean == pytest.approx(written_out.mean(), rel=1e-4)
    assert reward.statistics.variance == pytest.approx(written_out.var(), rel=1e-4)
    assert len(written_out) == 2 * round(0.8 * 1500)
    assert load_reward(trained / "reward", "best").facts["epoch"] == summary["best_epoch"]


def params_of(workdir):
    with reading(workdir / "reward/checkpoints") as checkpoints:
        step, arrays, _ = checkpoints.readable("last")
        return step, leaves_by_path(arrays["train"])


@pytest.mark.journey
def test_resumed_runs_end_with_the_same_bits(tmp_path):
    for name, epochs in (("whole", (3,)), ("parts", (1, 3))):
        workdir = make_workdir(tmp_path / name, 300)
        for number in epochs:
            summary = run(workdir, num_epochs=number)
        assert [row["epoch"] for row in summary["history"]] == [0, 1, 2, 3]
        assert [*read_lines(workdir / "reward/metrics.jsonl")] == summary["history"]
        assert [*(workdir / "reward/tensorboard").iterdir()]
    assert_same_bits(params_of(tmp_path / "whole"), params_of(tmp_path / "parts"))


def test_segments_mixtures_and_soft_labels(tmp_path):
    moments = np.random.default_rng(0).integers(len(EVENTS), size=(800, 2, 3))
    write_dataset(tmp_path / "dataset", [[[EVENTS[n] for n in moment] for moment in pair] for pair in moments])
    run_stage(annotate, settings(), tmp_path)
    run_stage(annotate, settings(**{"annotate.backend": "random"}), tmp_path)
    mixed = {"annotators": "lexicon_msg_defaultgoal:3,random:1", "labels": "soft", "learning_rate": 3e-3}
    summary = run(tmp_path, num_epochs=5, **mixed)
    last = summary["history"][-1]
    assert last["accuracy.lexicon_msg_defaultgoal"] > 0.8 > last["accuracy.random"]
    assert summary["annotators"] == {"lexicon_msg_defaultgoal": 0.75, "random": 0.25}


def test_the_bottom_line_can_be_read_too(tmp_path, monkeypatch):
    ends = []
    for steps in (1, 32):  # placed on the device in stretches of any length
        monkeypatch.setattr("motif_jax.stages.train_reward.fitting.STEPS", steps)
        workdir = make_workdir(tmp_path / str(steps), 160)
        summary = run(workdir, blstats=True, num_epochs=1, batch_size=64)
        ends.append(params_of(workdir))
    losses = [leaves.pop(("sums", "loss")) for _, leaves in ends]  # two programs may add it up in different orders
    np.testing.assert_allclose(*losses, rtol=1e-6)
    assert_same_bits(*ends)
    assert summary["parameters"] > 100_000
    reward = load_reward(workdir)
    assert not reward.reads_only_messages
    raw = reward(["You die..."] * 2, vector=np.stack([np.zeros(27), np.ones(27)]).astype(np.float32)).raw
    assert raw[0] != raw[1]
    # Every pair by itself gives what training has validated.
    data = load_data(view(**{"reward.blstats": True}), workdir)
    rows = preference.split_rows(np.arange(160), 0.2, 777).validation
    vector = scale_blstats(data.dataset.data["blstats"][rows]).reshape(-1, 27)
    rewards = reward(data.table.messages[data.ids[rows].reshape(-1)], vector=vector).raw.reshape(-1, 2)
    sided = data.target[rows] != 0.5
    right = (rewards[:, 1] > rewards[:, 0]) == (data.target[rows] > 0.5)
    assert summary["history"][-1]["accuracy"] == pytest.approx(right[sided].mean())
    # In this dataset the second moment has the higher score, always.
    assert summary["history"][-1]["score_accuracy"] == pytest.approx((rewards[:, 1] > rewards[:, 0]).mean())


def test_by_default_labels_are_soft_and_a_moment_without_a_message_is_worth_0(tmp_path, capsys):
    write_dataset(tmp_path / "dataset", random_pairs(600, events=(*EVENTS, "You hear a bugle playing reveille.")))
    run_stage(annotate, settings(), tmp_path)
    summary = run(tmp_path, num_epochs=4, learning_rate=3e-3)
    record = read_json(tmp_path / "reward/config.json")["reward"]
    assert (record["labels"], record["anchor"]) == ("auto", "auto")
    reward = load_reward(tmp_path)
    kill, nothing, death = reward(["You kill the newt!", "", "You die..."]).normalised
    assert kill > 0.1 > -0.1 > death
    assert nothing == pytest.approx(0.0, abs=1e-6)
    assert min(reward.statistics.quantiles.values()) >= 0
    assert summary["statistics"]["anchor"] == pytest.approx(reward([""]).raw[0], abs=1e-6)
    # All captions of so small a dataset were seen, so that there is nothing to compare with the rules.
    assert summary["worth"]["captions"] == 0
    assert "the worth to the rules" not in capsys.readouterr().out + (tmp_path / "reward/reward.html").read_text()


def test_pairs_with_a_rare_neutral_moment_are_only_trained_on(tmp_path, capsys):
    silent = [event for event in EVENTS if event]
    write_dataset(tmp_path / "dataset", [*random_pairs(599, events=silent), ("", "You die...")])
    run_stage(annotate, settings(), tmp_path)
    data, plain = (load_data(view(**{"reward.anchor": anchor}), tmp_path) for anchor in ("neutral", "none"))
    # 1 % of 600 pairs are 6 questions, each of which makes a pair.
    assert (len(data.target), len(data.ids), len(data.sided), len(plain.target)) == (606, 606, 606, 600)
    hard = load_data(view(**{"reward.anchor": "neutral", "reward.labels": "hard"}), tmp_path).target[600:]
    assert not set(data.target[600:]) <= {0, 0.5, 1}
    assert set(hard) <= {0, 0.5, 1}
    assert data.checksums != plain.checksums
    assert "are not used" not in capsys.readouterr().out
    assert len(load_data(view(**{"reward.blstats": True}), tmp_path).target) == 600
    assert "answers about a moment without a message are not used" in capsys.readouterr().out
    summary = run(tmp_path, num_epochs=1)
    assert sum(load_reward(tmp_path).counts) == 2 * 480  # statistics are of the dataset's own pairs
    assert summary["statistics"]["anchor"] is not None
    assert any(name.endswith(".neutral") for name in summary["labels"])


def test_other_bad_input_is_one_sentence(tmp_path):
    refusal(lambda: run(tmp_path), match="no dataset in .* yet")
    make_workdir(tmp_path, 300)
    refusal(lambda: run(tmp_path, annotators="mine"), "has no annotation 'mine'; it has lexicon_msg_defaultgoal")
    refusal(lambda: run(tmp_path, glyphs=True), "has no data/glyphs.npy, which this reward reads")


def test_a_reward_of_other_or_changed_labels_is_refused(tmp_path):
    workdir = make_workdir(tmp_path, 300)
    run(workdir, num_epochs=1)
    run_stage(annotate, settings(**{"annotate.goal": "gold"}), workdir)
    with pytest.raises(UserError, match="was learnt from lexicon_msg_defaultgoal, not from lexicon_msg_gold"):
        train_reward.is_complete(view(**{"annotate.goal": "gold", "reward.num_epochs": 2}), workdir)
    other = {
        "annotate.custom_name": "lexicon_msg_defaultgoal", "annotate.goal": "gold", "annotate.ignore_existing": True,
    }  # fmt: skip
    run_stage(annotate, settings(**other), workdir)
    refusal(lambda: run(workdir, num_epochs=1), "the labels have changed since the reward in")


def test_a_loss_that_is_not_finite_stops_with_its_step(tmp_path):
    workdir = make_workdir(tmp_path, 300)
    refusal(lambda: run(workdir, learning_rate=1e30), match=r"not finite, first at step \d+ of epoch \d+; remove")
    assert np.isfinite(load_reward(workdir).table().raw).all()  # the one before it is still there
