from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import refusal

from motif_jax.devices.checkpoints import reading
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.mesh import make_mesh
from motif_jax.files import read_json, read_lines
from motif_jax.offline.recipes import Running
from motif_jax.run import Run
from motif_jax.stages.offline import Session, best_episodes, resume
from motif_jax.structs import Stopped
from motif_jax.system.startup import StopAsked

SIZES = (5, 3, 4)  # batches of each epoch
# Saves after every update.
PACE = Running(num_epochs=3, log_every=2, evaluate_every=4, save_every_s=0.0, keep_checkpoints=2, tensorboard=False)


class Stop(StopAsked):
    def __init__(self, after=None):
        self.after, self.updates = after, 0

    @property
    def asked(self):
        return "SIGTERM" if self.after is not None and self.updates >= self.after else ""


class Sines:
    """A learner that is quick to compile."""

    title = "The language model"

    def __init__(self, stop, kill_at=None, broken_at=None, loss=lambda state: float(abs(state["x"]).sum()), **identity):
        self.stop, self.kill_at, self.broken_at, self.loss = stop, kill_at, broken_at, loss
        self.identity, self.metadata = {"transcripts": "these"} | identity, {}
        self.state = {"x": np.ones(3, np.float32), "steps": np.zeros((), np.int32)}

    def num_steps(self, epoch):
        return SIZES[epoch]

    def learn(self, state, epoch, step):
        self.stop.updates += 1
        if state["steps"] + 1 == self.kill_at:
            raise KeyboardInterrupt
        x = jnp.sin(3 * state["x"] + np.float32(np.random.default_rng((epoch, step)).normal()))
        finite = state["steps"] + 1 != self.broken_at
        return {"x": x, "steps": state["steps"] + 1}, {"loss": x.sum(), "finite": jnp.float32(finite)}

    def evaluate(self, state):
        return {"loss": self.loss(state)}

    def rank(self, figures):
        return figures["loss"]


def run(folder, stop=None, pace=PACE, **changes):
    stop = stop or Stop()
    with Hosts() as hosts, Run(folder.parent).stage("train_language", folder.name) as stage:
        session = Session(stage, pace, hosts, stop, make_mesh())
        with resume(Sines(stop, **changes), session) as training:
            stage.bind({"env": {"world": "wordle"}, "changes": list(changes)})
            training.run()
    return training


def rows(folder):
    """But for times."""
    found = read_lines(folder / "metrics.jsonl")
    return [{name: value for name, value in row.items() if name != "updates_per_s"} for row in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return run(folder), rows(folder), folder


def test_rows_say_how_training_and_validation_go(whole):
    outcome, lines, folder = whole
    assert (outcome.done.steps, outcome.done.epoch) == (12, 3)
    assert [row["steps"] for row in lines if "loss" in row] == [2, 4, 6, 8, 10, 12]
    assert [row["steps"] for row in lines if "valid_loss" in row] == [0, 4, 5, 8, 12]
    assert [row["epoch"] for row in lines if "valid_loss" in row] == [0, 0, 1, 2, 3]
    assert outcome.done.best == min((row for row in lines if "valid_loss" in row), key=lambda row: row["valid_loss"])
    with reading(folder / "checkpoints") as checkpoints:
        assert checkpoints.best() == outcome.done.best["steps"]
        assert set(checkpoints.steps()) == {outcome.done.best["steps"], 11, 12}


def test_of_equal_evaluations_the_last_is_the_best(tmp_path):
    """The first may be of what has not learnt anything. They are after 0, 4, 5, 8 and 12 updates."""
    outcome = run(tmp_path, loss=lambda state: 1.0 if state["steps"] < 12 else 2.0)
    assert outcome.done.best["steps"] == 8
    with reading(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.best() == checkpoints.readable("best")[0] == 8
        assert checkpoints.steps() == [8, 11, 12]


@pytest.mark.parametrize(("how", "at"), [("kill", 1), ("kill", 6), ("kill", 12), ("stop", 4), ("end", 2)])
def test_it_goes_on_after_any_update_to_the_same_end(tmp_path, whole, how, at):
    if how == "kill":
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, kill_at=at)
    elif how == "stop":
        with pytest.raises(Stopped, match=f"after {at} updates"):
            run(tmp_path, Stop(at))
    else:
        run(tmp_path, pace=replace(PACE, num_epochs=at))
    outcome = run(tmp_path)
    np.testing.assert_array_equal(outcome.state["x"], whole[0].state["x"])
    assert (outcome.done.steps, outcome.done.best) == (whole[0].done.steps, whole[0].done.best)
    assert rows(tmp_path) == whole[1]


@pytest.mark.differs(
    "ilql",
    there="`top_p` and `bottom_p` keep the best or worst episodes, for every algorithm; their number is rounded down",
    here="`best_share` keeps the best, for `filtered_bc`; their number is rounded, and at least one",
)
@pytest.mark.parametrize(("share", "kept"), [(0.1, [4]), (0.5, [2, 4]), (0.7, [2, 4, 5]), (1.0, [1, 2, 4, 5])])
def test_the_best_episodes_are_a_share_and_at_least_one(share, kept):
    returns = np.array([9.0, -1.0, 2.0, 9.0, 3.0, 2.0, 9.0])
    assert best_episodes(np.array([1, 2, 4, 5]), returns, share).tolist() == kept


def test_another_dataset_is_no_reason_to_go_on(tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path, Stop(2))
    refusal(lambda: run(tmp_path, transcripts="others"), "the transcripts changed since the training")
    assert read_json(tmp_path / "config.json")["changes"] == []  # the config of the first training stays


def test_what_is_not_finite_is_said_and_not_saved(tmp_path):
    pace = replace(PACE, save_every_s=1e6)
    parts = "at update 7 (epoch 1)", "--config.train_language.learning_rate"
    refusal(lambda: run(tmp_path, pace=pace, broken_at=7), *parts)
    with reading(tmp_path / "checkpoints") as checkpoints:
        assert max(checkpoints.steps()) < 7
