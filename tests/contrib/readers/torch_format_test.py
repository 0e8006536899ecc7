"""Published checkpoints in and out, with PyTorch's own layers as judge."""

import csv
import os
import pickle
import zipfile

import numpy as np
import pytest
from conftest import get_config, is_complete, refusal, run_stage

pytest.importorskip("torch", reason="needs PyTorch's build for CPUs: bash launch/test.sh installs it where it is found")
import preference_test as pairs
import torch
from reward_test import messages
from torch_reward import TorchReward, train

from motif_jax import experiment
from motif_jax.contrib.readers.torch_reward import EMBEDDING, export_reward, read_checkpoint, read_quantiles, to_torch
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.rewards import preference
from motif_jax.rewards.learnt_source import load_reward
from motif_jax.rewards.statistics import LEVELS
from motif_jax.stages import train_reward
from motif_jax.structs import UserError

UPDATES = 391  # optimiser steps per epoch of the published runs: 400,000 pairs in batches of 1,024
EPOCHS = 10


@pytest.fixture
def published(tmp_path):
    """An experiment as the published system leaves it: checkpoint_0, 391, ..., 3910, and a row for each."""
    torch.manual_seed(3)
    model = TorchReward()
    folder = tmp_path / "theirs"
    (folder / "checkpoint_p0").mkdir(parents=True)
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(EPOCHS + 1):
        whole = {"num_iter": UPDATES * epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        whole |= {"reward_mean": torch.tensor(0.5 + epoch), "reward_var": torch.tensor(4.0)}
        torch.save(whole, folder / f"checkpoint_p0/checkpoint_{UPDATES * epoch}.pth")
    (folder / "reward_metrics").mkdir()
    with open(folder / "reward_metrics/train_norm_quantiles.csv", "w", newline="") as lines:
        csv.writer(lines).writerow([f"{level:.2f}" for level in LEVELS])
        for epoch in range(EPOCHS + 1):  # the quantile of level 0.5 is the epoch / 100
            csv.writer(lines).writerow([f"{(number + epoch / 10) / 10:.2f}" for number in range(-9, 10)])
    return model, folder


def read_as_published(folder):
    """What the published agent takes from an experiment: the latest checkpoint, and the first and last line."""
    steps = [int(file.stem.removeprefix("checkpoint_")) for file in (folder / "checkpoint_p0").glob("checkpoint_*")]
    with open(folder / "reward_metrics/train_norm_quantiles.csv", newline="") as lines:
        levels, *_, last = csv.reader(lines)
    whole = torch.load(folder / f"checkpoint_p0/checkpoint_{max(steps)}.pth", weights_only=True)
    return whole, dict(zip(levels, map(float, last), strict=True))


def take(workdir, checkpoint):
    config = get_config(reward__import_from=str(checkpoint))
    run_stage(train_reward, config, workdir)
    assert is_complete(train_reward, config, workdir)
    return load_reward(workdir)


@pytest.mark.parametrize(("epoch", "known"), [(1, True), (EPOCHS, True), (EPOCHS, False)])
def test_a_published_reward_is_taken_with_its_own_row_or_the_last_one(published, tmp_path, capsys, epoch, known):
    _, folder = published
    if not known:
        (folder / "checkpoint_p0/checkpoint_0.pth").unlink()
    reward = take(tmp_path / "ours", folder / f"checkpoint_p0/checkpoint_{UPDATES * epoch}.pth")
    assert reward.facts["epoch"] == epoch
    assert reward.statistics.mean == 0.5 + epoch
    assert reward.statistics.quantile(0.5) == epoch / 100
    assert ("its row is unknown: the last one is used" in capsys.readouterr().out) != known
    if epoch == EPOCHS:
        whole, quantiles = read_as_published(folder)
        assert reward.statistics.quantiles == quantiles
        assert reward.statistics.mean == float(whole["reward_mean"])


def test_a_published_reward_gives_the_same_values_here_and_back(published, tmp_path, capsys):
    model, folder = published
    workdir, file = tmp_path / "ours", folder / f"checkpoint_p0/checkpoint_{UPDATES * EPOCHS}.pth"
    take(workdir, file)
    (workdir / "reward/statistics.json").unlink()  # as if killed before the last file
    reward = take(workdir, file)
    text = messages(40)
    with torch.no_grad():
        expected = model(torch.from_numpy(text)).numpy()
    raw, normalised = reward(text)
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    np.testing.assert_allclose(normalised, (expected - 10.5) / 2, atol=1e-5)
    assert reward.statistics.quantile(0.5) == 0.1
    assert reward.statistics.quantile(0.95) == pytest.approx(1.0)

    # ... and back, to an experiment that the published code, and we, can read.
    back = export_reward(reward, tmp_path / "back")
    assert back == tmp_path / "back/checkpoint_p0/checkpoint_10.pth"
    again = TorchReward()
    whole, quantiles = read_as_published(tmp_path / "back")
    again.load_state_dict(whole["model"])
    with torch.no_grad():
        np.testing.assert_allclose(again(torch.from_numpy(text)).numpy(), expected, atol=1e-5)
    for name, tensor in model.state_dict().items():
        assert name.startswith(("critic", "action")) or torch.equal(tensor, whole["model"][name]), name
    assert (float(whole["reward_mean"]), float(whole["reward_var"])) == (10.5, 4.0)
    assert whole["num_iter"] == 10
    assert quantiles == reward.statistics.quantiles
    imported = take(tmp_path / "again", back)
    assert imported.statistics == reward.statistics
    assert imported.facts["epoch"] == 10
    assert "row is unknown" not in capsys.readouterr().out
    refusal(lambda: export_reward(reward, tmp_path / "back"), "is there already")


class Evil:
    def __reduce__(self):
        return (print, ("code of a stranger runs",))


def test_files_that_are_no_such_checkpoint_are_refused(published, tmp_path, capsys):
    model, folder = published
    file = folder / "checkpoint_p0/checkpoint_0.pth"
    state = model.state_dict()
    facts = {"num_iter": 1, "reward_mean": torch.tensor(0.0), "reward_var": torch.tensor(1.0), "optimizer": {}}
    bad = tmp_path / "bad.pth"

    def refused(sentence):
        with pytest.raises(UserError, match=sentence):  # PyTorch's own words have colours
            read_checkpoint(bad)

    refused("No such file")
    os.mkfifo(bad)
    refused("it is not a regular file")
    bad.unlink()
    for data in (file.read_bytes()[:1000], pickle.dumps({"model": Evil()})):
        bad.write_bytes(data)
        refused(r"cannot read.*--config.reward.import_from")
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in whole.infolist():
            packed.writestr(part.filename, whole.read(part) + bytes(10_000))
    refused("damaged, or compressed")
    torch.save(facts | {"model": {"x": torch.zeros(1)}, "evil": Evil()}, bad)
    refused("cannot read")
    torch.save(facts | {"model": {name: state[name] for name in list(state)[:4]}}, bad)
    refused("reads only messages has other arrays")
    torch.save(facts | {"model": state | {"encoder.blstats.weight": torch.zeros(1)}}, bad)
    refused("has other arrays, see 'encoder.blstats.weight'")
    assert "stranger" not in capsys.readouterr().out
    for change in ({"reward_var": torch.tensor(-1.0)}, {"num_iter": -1}, {"reward_mean": torch.tensor(float("nan"))}):
        torch.save(facts | {"model": state} | change, bad)
        refused("cannot read .* negative|reward_mean in .* not finite")
    torch.save(facts | {"model": state | {"encoder.conv1.weight": torch.zeros(3, 3)}}, bad)
    (folder / "checkpoint_p0/checkpoint_9.pth").write_bytes(bad.read_bytes())
    with pytest.raises(UserError, match=r"another architecture: .* is \(3, 3\).*--config.reward.import_from"):
        take(tmp_path / "bad", folder / "checkpoint_p0/checkpoint_9.pth")


@pytest.mark.parametrize(("table", "sentence"), [
    ("pipe", "it is not a regular file"),
    ("0.05,0.10\n", "must be lines of 2 finite numbers"),
    ("0.05,0.10\n1.0,nan\n", "must be lines of 2 finite numbers"),
    ("0.05,0.10\n" + "1.00,2.00\n" * 2_000_000, "more than 16,777,216 bytes"),
])  # fmt: skip
def test_quantiles_that_cannot_be_read_are_refused_in_one_sentence(tmp_path, table, sentence):
    file = tmp_path / "reward_metrics/train_norm_quantiles.csv"
    for folder in ("reward_metrics", "checkpoint_p0"):
        (tmp_path / folder).mkdir()
    if table == "pipe":
        os.mkfifo(file)
    else:
        file.write_text(table)
    match = rf"cannot read the quantiles in .*{sentence}.*--config.reward.import_from"
    refusal(lambda: read_quantiles(tmp_path / "checkpoint_p0/checkpoint_0.pth", 0), match=match)


def test_training_is_that_of_plain_pytorch():
    table, ids, target = pairs.data()
    _, params = preference.make_reward_model(pairs.OPTIONS, 0)
    start = {key: np.asarray(array) for key, array in leaves_by_path(params).items()}
    model = TorchReward(unused_heads=False)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in to_torch(start).items()})
    rows = preference.epoch_order(np.arange(len(ids)), 1, 0)
    text = np.zeros((len(table), 256), np.uint8)
    text[:, :64] = table
    cut = [rows[at : at + 64] for at in range(0, len(rows), 64)]
    losses = train(model, [(text[ids[part, :, 0]], target[part]) for part in cut], pairs.RATE)
    ours = pairs.train(preference.make_batches(rows, ids, target, 64, 1), table)
    # the loss of each batch weighs as many pairs as it has
    assert float(ours.sums.loss) == pytest.approx(sum(a * len(b) for a, b in zip(losses, cut, strict=True)), rel=1e-5)
    ends = to_torch({key: np.asarray(array) for key, array in leaves_by_path(ours.params).items()})
    for name, tensor in model.state_dict().items():
        np.testing.assert_allclose(ends[name], tensor.numpy(), atol=2e-5, err_msg=name)


def test_parameters_that_are_not_finite_are_refused(tmp_path):
    state, file = TorchReward().state_dict(), tmp_path / "checkpoint_7.pth"
    for bad in (np.nan, np.inf):
        state[EMBEDDING][2, 3] = bad
        mean, variance = torch.tensor(0.5), torch.tensor(4.0)
        torch.save({"num_iter": 7, "model": state, "reward_mean": mean, "reward_var": variance}, file)
        refusal(lambda: read_checkpoint(file), "not finite", EMBEDDING, str(file))


@pytest.mark.parametrize(("name", "said"), [
    ("/nowhere.pth", "cannot read '/nowhere.pth' as a PyTorch checkpoint"),
    ("text.pth", "it does not begin like one (--config.reward.import_from)"),
])  # fmt: skip
def test_other_files_are_refused_before_anything_starts(name, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.pth").write_text("no checkpoint")
    config = get_config(reward__import_from=name)
    refusal(lambda: experiment.check(config.to_dict(), ["train_reward"], tmp_path), said)
