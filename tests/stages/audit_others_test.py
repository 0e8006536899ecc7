"""The checks of an audit that need no honest judge: random play, steps in which nothing happens, a second judge."""

import pytest
from audit_test import settings, write_player

from motif_jax.files import read_json
from motif_jax.stages import audit

WRONG = {"annotate.backend": "examples.judges.wrong:ByQuestion", "annotate.model": "1.0"}


def changed(values):
    config = settings()
    for name, value in values.items():
        section, _, last = name.rpartition(".")
        config[section][last] = value
    return config


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Of an agent that walks into a wall, and of a judge with a second one beside it."""
    workdir = tmp_path_factory.mktemp("beside") / "run"
    write_player(workdir, "policy-100", ".", 1.0)
    write_player(workdir, "random", "", 0.0)
    config = changed(WRONG | {"audit.second_judge": "rules"})
    audit.check(config)
    audit.run(config, workdir)
    assert audit.is_complete(config, workdir)
    assert not audit.is_complete(changed(WRONG), workdir)
    return read_json(workdir / "audit/audit.json"), workdir


def test_an_agent_below_random_play_is_reported_whatever_the_judge_says(record):
    told = {one["check"]: one["sentence"] for one in record[0]["findings"]}
    assert told["worse than random play"].startswith("the agent is below random play in return (")
    assert told["worse than random play"].endswith("and above it in nothing")
    assert "walls" not in told["worse than random play"]  # nobody knows whether more walls are better


def test_the_second_judge_is_asked_about_the_same_pairs_and_its_answers_are_kept(record):
    why = {one["check"]: one["why"] for one in record[0]["not_looked_at"]}
    assert why["second opinion"] == "1 pairs of captions are decided by both judges, and 20 are needed"
    first, second = (read_json(record[1] / "audit" / file)["answers"] for file in ("answers.json", "second.json"))
    assert sorted(second) == [0.0, 1.0]  # one pair in both orders
    assert len(first) > len(second)


def test_without_a_player_beside_the_agent_random_play_is_asked_for(tmp_path):
    write_player(tmp_path, "policy-100", ".", 0.8)
    audit.run(settings(), tmp_path)
    why = {one["check"]: one["why"] for one in read_json(tmp_path / "audit/audit.json")["not_looked_at"]}
    assert why["worse than random play"] == "random play was not evaluated (--config.evaluate.beside=random)"
    assert why["second opinion"] == "no second judge is named (--config.audit.second_judge)"
