"""Published checkpoints in and out, with PyTorch's own layers as judge."""

import csv
import pickle

import numpy as np
import pytest
from conftest import get_config

pytest.importorskip("torch", reason="needs PyTorch's build for CPUs: bash launch/test.sh installs it where it is found")
import torch
from reward_test import messages
from torch_reward import TorchReward

from motif_jax.api import export_reward, load_reward
from motif_jax.rewards.statistics import LEVELS
from motif_jax.rewards.torch_format import read_checkpoint, read_quantiles
from motif_jax.stages import train_reward
from motif_jax.structs import UserError


@pytest.fixture
def published(tmp_path):
    """An experiment as the published system leaves it."""
    torch.manual_seed(3)
    model = TorchReward()
    folder = tmp_path / "theirs"
    (folder / "checkpoint_p0").mkdir(parents=True)
    (folder / "reward_metrics").mkdir()
    optimizer = torch.optim.Adam(model.parameters())
    whole = {"num_iter": 10, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    file = folder / "checkpoint_p0" / "checkpoint_10.pth"
    torch.save(whole | {"reward_mean": torch.tensor(0.5), "reward_var": torch.tensor(4.0)}, file)
    with open(folder / "reward_metrics" / "train_norm_quantiles.csv", "w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow([f"{level:.2f}" for level in LEVELS])
        for number in range(10):
            writer.writerow([number] * 19)
        writer.writerow([f"{number / 10:.2f}" for number in range(-9, 10)])  # of iteration 10
        writer.writerow([77.0] * 19)  # of one that came later
    return model, file


def test_a_published_reward_gives_the_same_values_here(published, tmp_path):
    model, file = published
    config = get_config()
    config.reward.import_from = str(file)
    workdir = tmp_path / "ours"
    train_reward.check(config)
    train_reward.run(config, workdir)
    assert train_reward.is_complete(config, workdir)
    (workdir / "reward/statistics.json").unlink()  # as if killed before the last file
    assert not train_reward.is_complete(config, workdir)
    train_reward.run(config, workdir)
    assert train_reward.is_complete(config, workdir)
    reward = load_reward(workdir)
    text = messages(40)
    with torch.no_grad():
        expected = model(torch.from_numpy(text)).numpy()
    raw, normalised = reward(text)
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    np.testing.assert_allclose(normalised, (expected - 0.5) / 2, atol=1e-5)
    assert reward.statistics.quantile(0.5) == 0.0
    assert reward.statistics.quantile(0.95) == pytest.approx(0.9)

    # ... and back, to an experiment that the published code, and we, can read.
    back = export_reward(reward, tmp_path / "back")
    assert back == tmp_path / "back/checkpoint_p0/checkpoint_10.pth"
    again = TorchReward()
    whole = torch.load(back, weights_only=True)
    again.load_state_dict(whole["model"])
    with torch.no_grad():
        np.testing.assert_allclose(again(torch.from_numpy(text)).numpy(), expected, atol=1e-5)
    for name, tensor in model.state_dict().items():
        unused = name.startswith(("critic", "action"))
        assert unused or torch.equal(tensor, whole["model"][name]), name
    assert (float(whole["reward_mean"]), float(whole["reward_var"])) == (0.5, 4.0)
    assert whole["num_iter"] == 10
    config.reward.import_from = str(back)
    train_reward.run(config, tmp_path / "again")
    assert load_reward(tmp_path / "again").statistics == reward.statistics
    with pytest.raises(UserError, match="is there already"):
        export_reward(reward, tmp_path / "back")


class Evil:
    def __reduce__(self):
        return (print, ("code of a stranger runs",))


def test_files_that_are_no_such_checkpoint_are_refused(published, tmp_path, capsys):
    model, file = published
    state = model.state_dict()
    facts = {"num_iter": 1, "reward_mean": torch.tensor(0.0), "reward_var": torch.tensor(1.0), "optimizer": {}}
    bad = tmp_path / "bad.pth"
    with pytest.raises(UserError, match="there is no file"):
        read_checkpoint(bad)
    cases = [
        (b"nonsense", "cannot read"),
        (file.read_bytes()[:1000], "cannot read"),
        (pickle.dumps({"model": Evil()}), "cannot read"),
    ]
    for data, sentence in cases:
        bad.write_bytes(data)
        with pytest.raises(UserError, match=sentence + r".*--config.reward.import_from"):
            read_checkpoint(bad)
    torch.save(facts | {"model": {"x": torch.zeros(1)}, "evil": Evil()}, bad)
    with pytest.raises(UserError, match="cannot read"):
        read_checkpoint(bad)
    torch.save(facts | {"model": {name: state[name] for name in list(state)[:4]}}, bad)
    with pytest.raises(UserError, match=r"reads messages alone: it has no"):
        read_checkpoint(bad)
    torch.save(facts | {"model": state | {"encoder.blstats.weight": torch.zeros(1)}}, bad)
    with pytest.raises(UserError, match="reads more than messages: it also has 'encoder.blstats.weight'"):
        read_checkpoint(bad)
    assert "stranger" not in capsys.readouterr().out
    with pytest.raises(UserError, match="cannot read the quantiles"):
        read_quantiles(tmp_path / "nothing.csv", 0)
    table = file.parent.parent / "reward_metrics/train_norm_quantiles.csv"
    assert set(read_quantiles(table, 3).values()) == {3.0}
    with pytest.raises(UserError, match="it has no row of values for iteration 12"):
        read_quantiles(table, 12)
    for change in ({"reward_var": torch.tensor(-1.0)}, {"num_iter": -1}, {"reward_mean": torch.tensor(float("nan"))}):
        torch.save(facts | {"model": state} | change, bad)
        with pytest.raises(UserError, match="cannot read .*(negative|no number)"):
            read_checkpoint(bad)
    torch.save(facts | {"model": state | {"encoder.conv1.weight": torch.zeros(3, 3)}}, bad)
    with pytest.raises(UserError, match="cannot read .*--config.reward.import_from"):
        read_checkpoint(bad)
