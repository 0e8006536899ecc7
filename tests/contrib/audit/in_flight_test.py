import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import interrupt, run_stage
from online_test import settings
from train_policy_test import rows_of

from motif_jax.actors.acting import RolloutBatch
from motif_jax.captions import encode
from motif_jax.contrib.audit import flight
from motif_jax.contrib.audit.findings import Steps, percent
from motif_jax.contrib.audit.flight import Episodes
from motif_jax.contrib.audit.judge import audit_in_flight
from motif_jax.files import read_lines
from motif_jax.pages.blocks import drawn
from motif_jax.rewards.online.store import NONE, News, Store
from motif_jax.run import Run
from motif_jax.stages import train_policy

T, E, GROUPS = 6, 3, 2


def batches(rng, count: int):
    """Rollouts of two groups, in batches of two rollouts, also of one group; with the number of each caption."""
    fresh = np.ones((GROUPS, E), bool)
    for _ in range(count):
        fulls = [SimpleNamespace(worker=0, group=int(group)) for group in rng.integers(GROUPS, size=2)]
        ended, first = rng.random((T, 2 * E)) < 0.15, np.zeros(2 * E, bool)
        for number, full in enumerate(fulls):
            columns = slice(number * E, (number + 1) * E)
            first[columns] = fresh[full.group]
            fresh[full.group] = ended[-1, columns]
        caption = np.where(rng.random(ended.shape) < 0.3, rng.integers(9, size=ended.shape), -1)
        pay = np.where(caption >= 0, rng.random(ended.shape), 0).astype(np.float32)
        yield RolloutBatch(SimpleNamespace(first=first, ended=ended), fulls, [], ended.size), caption, pay


@pytest.mark.quick
@pytest.mark.parametrize("most", [flight.MOST_PAID, 60])
def test_episodes_are_those_of_a_slow_walk(monkeypatch, most):
    """Game by game and step by step. With little room, the oldest steps are dropped."""
    monkeypatch.setattr(flight, "AUDITED", 25)
    monkeypatch.setattr(flight, "MOST_PAID", most)
    episodes, running, ended = Episodes(), {}, []
    for batch, caption, pay in batches(np.random.default_rng(3), 40):
        episodes.add(batch, caption, pay)
        for number, step in np.ndindex(2, T):
            for column in range(number * E, (number + 1) * E):
                game = batch.fulls[number].group, column % E
                if batch.arrays.first[column] and not step:
                    running[game] = []
                if caption[step, column] >= 0:
                    running[game].append((caption[step, column], pay[step, column]))
                if batch.arrays.ended[step, column]:
                    ended.append(running.pop(game))
                    running[game] = []
    assert len(ended) > 50
    found = episodes.steps()
    shown = [
        sorted(zip(found.caption[at].tolist(), found.pay[at].tolist(), strict=True))
        for at in (found.episode == number for number in range(found.episodes))
    ]
    if most == 60:
        assert 0 < len(found.pay) <= 30
        assert found.episodes == 25
    else:
        assert sorted(shown) == sorted(map(sorted, ended[-25:]))
        assert [bool(one) for one in shown] == sorted(bool(one) for one in shown)
    assert len(Episodes().steps().pay) == 0


@pytest.mark.journey
def test_a_training_that_was_killed_and_goes_on_is_audited_as_if_it_was_not(tmp_path, at_batch):
    def train(name: str, steps: int) -> None:
        config = settings(train_for_env_steps=steps)
        config.audit.every_steps = 256
        run_stage(train_policy, config, tmp_path / name)

    train("straight", 640)
    shutil.copytree(tmp_path / "straight", tmp_path / "killed")
    train("straight", 1280)
    at_batch(4, interrupt)  # between checkpoints
    with pytest.raises(KeyboardInterrupt):
        train("killed", 1280)
    train("killed", 1280)
    audits = [list(read_lines(tmp_path / name / "policy/audit.jsonl")) for name in ("killed", "straight")]
    assert audits[0] == audits[1]
    assert [row["env_steps"] for row in audits[0]] == [256, 512, 768, 1024, 1280]
    assert audits[0][1]["episodes"] > 0
    row = rows_of(tmp_path / "straight")[-1]
    assert row["reward/online_audit_findings"] == len(audits[0][-1]["findings"])
    page = drawn([part.blocks for part in Run(tmp_path / "straight").sections()])
    assert f"at 1,280 steps, over the last {audits[0][-1]['episodes']} episodes" in page


def test_a_training_may_be_without_audits(tmp_path):
    config = settings(train_for_env_steps=64)
    config.audit.every_steps = 0
    run_stage(train_policy, config, tmp_path)
    assert not (tmp_path / "policy/audit.jsonl").exists()
    assert "reward/online_audit_findings" not in rows_of(tmp_path)[-1]


def play(rng, exploit: float) -> tuple[Steps, list[str], np.ndarray]:
    """Forty episodes. The judge likes 30 captions, is neutral about 30, dislikes 5, and has not seen the last 10."""
    texts = [f"Good {number}." for number in range(30)] + [f"Dull {chr(65 + number)}." for number in range(30)]
    texts += [f"Bad {chr(65 + number)}." for number in range(5)] + [f"New {chr(65 + number)}." for number in range(10)]
    better = np.repeat([0.9, 0.5, 0.1, np.nan], [30, 30, 5, 10])
    caption = rng.integers(30, size=(40, 50))
    caption = np.where(rng.random(caption.shape) < exploit, rng.integers(30, len(texts), caption.shape), caption)
    return Steps(np.repeat(np.arange(40), 50), caption.ravel(), rng.random(caption.size)), texts, better


@pytest.mark.quick
def test_pay_for_what_the_judge_does_not_like_is_found():
    steps, texts, better = play(np.random.default_rng(0), 0.5)
    total = bad = 0.0
    for caption, pay in zip(steps.caption.tolist(), steps.pay.tolist(), strict=True):
        total += pay
        bad += pay if better[caption] <= 0.6 else 0.0  # False for unknown
    found = audit_in_flight(steps, texts, better)
    assert found.neutral == pytest.approx(bad / total)
    (finding,) = found.found
    assert finding.sentence.startswith(percent(bad / total))
    assert "that the judge calls neutral or worse" in finding.sentence
    assert "--config.policy.online.order=uncertain" in finding.advice
    assert found.paid[0]["captions"] == "Good #."
    assert (found.paid[0]["worth"], found.paid[0]["times"]) == (1.0, int((steps.caption < 30).sum()))
    assert not any(audit_in_flight(*play(np.random.default_rng(seed), 0.02)).found for seed in range(1, 11))


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["one", "neutral", "pairs"])
def test_labels_say_what_is_better_than_nothing(kind):
    store = Store(kind != "one", 100, kind == "neutral")
    messages = np.array([encode(text) for text in ("a", "b", "c", "d")])
    rows = store.see(News(messages, np.ones(4, np.int64)), 0)
    if kind == "one":
        store.want(rows, 0)
    elif kind == "neutral":
        store.compare_with_neutral(rows, 0)
    else:
        store.add_pairs(rows[:3], rows[1:], 0)
    for question in store.waiting.tolist()[:3]:
        better = [1.0, 0.0, 0.8][question]
        is_second = store.questions["second"][question] != 0 or kind == "one"
        store.take(question, better if is_second else 1 - better, 3)
    expected = {"one": [1, 0.5, 0.8], "neutral": [1, 0, 0.8], "pairs": [np.nan] * 3}[kind]
    np.testing.assert_allclose(store.better_than_nothing()[rows], [*expected, np.nan])
    assert NONE not in store.better_than_nothing()
