"""Programs in lists of reward sources, on pages and in checkpoints, by their names."""

import pytest
from conftest import get_config, refusal, viewed
from report_workdir import write_policy

from motif_jax.contrib.code_rewards.source import CODE
from motif_jax.pages.blocks import drawn
from motif_jax.rewards.registry import SourceChoice, parse_sources, shown_source
from motif_jax.rewards.source import sources_from
from motif_jax.stages import report, train_policy
from motif_jax.stages.train_policy.page import report_training

pytestmark = pytest.mark.quick


def test_a_program_is_named_by_its_file_and_needs_no_coefficient():
    assert parse_sources("code:write_reward:2", 0.1) == [SourceChoice("code_written", CODE.path, 2.0, "write_reward")]
    assert parse_sources("code:a/gold.reward,code:b_2.reward:-0.5", 0.1) == [
        SourceChoice("code_gold", CODE.path, 1.0, "a/gold.reward"),
        SourceChoice("code_b_2", CODE.path, -0.5, "b_2.reward"),
    ]
    assert parse_sources("package:code_gold:1", 0.1)[0].kind is not CODE  # a class of a user's own


@pytest.mark.parametrize(("sources", "said"), [
    ("code", "a program is a file NAME.reward (up to 60 letters, digits, underscores), or write_reward, not ''"),
    ("code:gold.py:1", "not 'gold.py'"), ("code:gold.reward:1:2", "not 'gold.reward:1'"),
])  # fmt: skip
def test_what_is_no_program_is_refused(sources, said, tmp_path):
    config = get_config("quickstart.py", policy__sources=sources)
    refusal(lambda: train_policy.check(viewed(config), tmp_path), said, "--config.policy.sources")


def test_the_title_says_that_a_program_paid(tmp_path):
    write_policy(tmp_path, get_config("quickstart.py", policy__sources="code:a/b/gold.reward"))
    report_training(tmp_path)
    facts = report.read_record(tmp_path).facts
    assert facts.title == "An agent that likes what the program gold pays"
    assert "by the program gold alone" in drawn(facts.lead)


def test_replays_show_the_first_program_where_there_is_no_learnt_reward():
    assert shown_source(["count", "code_gold", "code_written"]) == "code_gold"
    assert shown_source(["code_gold", "learnt"]) == "learnt"


@pytest.mark.parametrize("path", [CODE.path, "motif_jax.rewards.code.source:CodeReward"])  # of 0.2.0
def test_a_checkpoint_finds_the_class_of_programs_wherever_it_lay(path):
    facts = {"file": "one.reward", "program": "1", "uses": {"entries": {}, "viewpoints": {}, "still": []}}
    (one,) = sources_from({"sources": {"code_one": {"class": path, "coefficient": 0.5, "facts": facts}}}, {})
    assert (one.name, one.path, one.source.facts()["program"]) == ("code_one", CODE.path, "1")
    assert not sources_from({"sources": {"code_one": {"class": "os:system", "coefficient": 1, "facts": facts}}}, {})
