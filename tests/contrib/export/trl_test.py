"""Transcripts in TRL's formats: what is written is read back as it was."""

import json
from pathlib import Path

import pytest
from conftest import check_stage, get_config, refusal, run_stage
from talks import write

from motif_jax.contrib.export import stage as export
from motif_jax.contrib.export.trl import write_trl
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.imports import FORMATS, read_trl

pytestmark = pytest.mark.quick
EPISODES = [
    Episode((Turn("Guess."), Turn("crane", -1.0), Turn("no"), Turn("abide", 0.0)), terminal=True),
    Episode((Turn("Guess."), Turn("crane", -1.0), Turn("no"), Turn("zesty", -1.0), Turn("é <s>")), terminal=True),
    Episode((Turn("Talk."), Turn("hello", 2.0)), terminal=True),
    Episode((Turn("Guess."), Turn("other", -3.0)), terminal=True),
]


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "run/transcripts", EPISODES)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "all.jsonl"


def rows(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def say(role, content):
    return {"role": role, "content": content}


def test_messages_are_read_back_as_they_were(store, file):
    assert write_trl(store, file, "messages", 1) == 4
    assert list(read_trl(file)) == EPISODES
    talk = [say("user", "Talk."), say("assistant", "hello")]
    assert rows(file)[2] == {"messages": talk, "rewards": [2.0], "done": True}


def test_each_turn_of_the_agent_is_a_completion(store, file):
    assert write_trl(store, file, "turns", 1) == sum(turn.is_action for one in EPISODES for turn in one.turns) == 6
    second = rows(file)[1]
    assert second["prompt"] == [say("user", "Guess."), say("assistant", "crane"), say("user", "no")]
    assert second["completion"] == [say("assistant", "abide")]
    assert [turn.reward for turn in list(read_trl(file))[1].turns] == [None, 0.0, None, 0.0]  # the last one's is known


def test_preferences_compare_episodes_that_begin_alike_where_they_part(store, file):
    """Of the three games, the worst (-3) is compared with the best (-1); the middle one and the talk stay alone."""
    assert write_trl(store, file, "preferences", 1) == 1
    prompt, good, bad = [say("user", "Guess.")], [say("assistant", "crane")], [say("assistant", "other")]
    assert rows(file) == [{"prompt": prompt, "chosen": good, "rejected": bad}]
    better, worse = read_trl(file)
    assert better.turns == (Turn("Guess."), Turn("crane", 1.0))
    assert worse.turns == (Turn("Guess."), Turn("other", -1.0))


def test_the_assistant_always_follows_the_user_and_cuts_are_kept(tmp_path, file):
    """In Wordle the agent begins, and texts that are not five letters get no answer."""
    wordle = Episode((Turn("crane", -1.0), Turn("<b>"), Turn("no", -1.0), Turn("abide", 0.0)), terminal=False)
    other = Episode((Turn("other", -3.0),), terminal=True)
    silent = Episode((Turn("nobody speaks"),), terminal=True)
    store = write(tmp_path / "run/transcripts", [wordle, other, silent])
    assert write_trl(store, file, "messages", 1) == 2  # not the one without the agent
    assert list(read_trl(file)) == [wordle, other]
    for form in FORMATS:
        write_trl(store, file, form, 1)
        for row in rows(file):
            texts = row.get("messages") or [*row["prompt"], *row.get("completion", row.get("chosen"))]
            assert [one["role"] == "assistant" for one in texts] == [bool(place % 2) for place in range(len(texts))]
    write_trl(store, file, "turns", 1)
    assert [row["done"] for row in rows(file)] == [False, False, False, True]


def test_the_stage_export_writes_them_and_overwrites_no_file_of_the_user(store, tmp_path):
    config, workdir = get_config(), tmp_path / "run"
    for form in FORMATS:
        config.export.transcripts = form
        run_stage(export, config, workdir)
        assert rows(workdir / f"trl/{form}.jsonl")
    config.export.to = str(tmp_path / "mine.jsonl")
    Path(config.export.to).write_text("mine")
    refusal(lambda: check_stage(export, config), match="exists already.*--config.export.to")
