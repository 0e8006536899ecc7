"""The audit in flight beside training: its rows and lines, a resumed run, a change of goal, and its own errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import get_config

from motif_jax.captions import encode
from motif_jax.files import read_lines
from motif_jax.rewards.choice import ONLINE, SOURCES
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.source import Setting
from motif_jax.rewards.sources import RewardSources, Weighted
from motif_jax.stages.train_policy import audit
from motif_jax.stages.train_policy.audit import FlightAudit
from motif_jax.stages.train_policy.page import audit_blocks

pytestmark = pytest.mark.quick
T, B = 10, 4
STEPS = T * B  # of a batch
TEXTS = ["It's a wall.", "You kill the newt!", "You descend the stairs.", "You die..."]
MESSAGES = np.array([encode(text) for text in TEXTS])


def make(folder, every: int = 100, goals: str = "defaultgoal@0"):
    """An online reward that looks labels up, and the audit of it."""
    config = get_config(argument="score")
    config.policy.synchronous = True
    config.policy.online.update({"audit_every_steps": every, "goals": goals})
    config.annotate.cache_dir = ""
    source = OnlineSource.make(Setting(config, folder, {}))
    sources = RewardSources([Weighted(ONLINE, SOURCES[ONLINE].path, 1.0, source)])
    (folder / "policy").mkdir(exist_ok=True)
    return source, lambda env_steps: FlightAudit(config, folder / "policy", env_steps, sources)


def train(source, flight, first: int, last: int):
    """Batches of whole episodes, which are paid for every message, whatever the judge says."""
    for number in range(first, last):
        shown = MESSAGES[np.random.default_rng(number).integers(len(TEXTS), size=(T, B))]
        source.worth(shown.reshape(-1, 256))
        source.advance(SimpleNamespace(steps=STEPS), None)
        ended = np.zeros((T, B), bool)
        ended[-1] = True
        pay = np.ones((T, B), np.float32)
        placed = SimpleNamespace(
            rewards={ONLINE: pay}, paid_messages=shown[pay > 0], first=np.ones(B, bool), ended=ended
        )
        flight.after_update(
            (number + 1) * STEPS, SimpleNamespace(arrays=placed, fulls=[SimpleNamespace(worker=0, group=0)])
        )


def rows_of(folder):
    return list(read_lines(folder / "policy/audit.jsonl"))


def test_what_is_paid_wrongly_is_told_once_and_recorded(tmp_path, capsys):
    source, begin = make(tmp_path)
    flight = begin(0)
    train(source, flight, 0, 8)
    first, second, third = rows_of(tmp_path)
    assert [row["env_steps"] for row in (first, second, third)] == [120, 200, 320]  # the first updates after 100, ...
    assert first["not_looked_at"][0]["why"].startswith("12 episodes have ended")
    assert {one["check"] for one in second["findings"]} == {"pay for neutral captions", "loops"}
    assert second["paid"][0].keys() == {"captions", "share", "times", "worth"}
    said = [line for line in capsys.readouterr().out.splitlines() if "audit" in line]
    assert len(said) == audit.TOLD < len(second["findings"])
    assert all(line.startswith("train_policy: audit at 200 steps: ") for line in said)
    assert any("of the pay is for captions that the judge calls neutral or worse" in line for line in said)
    figures = flight.figures()
    assert figures["reward/online_audit_findings"] == len(third["findings"])
    assert 0.2 < figures["reward/online_audit_neutral"] < 0.8
    assert flight.figures() == {}
    page = "".join(audit_blocks(rows_of(tmp_path)[-1]))
    assert "at 320 steps, over the last 32 episodes" in page
    assert "It&#x27;s a wall." in page
    assert "neutral" in page


def test_a_resumed_run_keeps_the_rows_and_begins_new_episodes(tmp_path):
    source, begin = make(tmp_path)
    train(source, begin(0), 0, 6)
    rows = rows_of(tmp_path)
    train(source, begin(160), 4, 6)
    again = rows_of(tmp_path)
    assert again[0] == rows[0]
    assert [(row["env_steps"], row["episodes"]) for row in again] == [(120, 12), (200, 4)]
