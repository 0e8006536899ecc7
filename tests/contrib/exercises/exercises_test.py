"""Exercises in reading, which are imported like manuals."""

import pytest
from conftest import check_stage, get_config, refusal

from motif_jax.contrib.exercises import reading as module
from motif_jax.contrib.exercises.reading import EXERCISES, make_exercises
from motif_jax.envs.babyai.manual import SHIPPED
from motif_jax.envs.babyai.words import HELD_OUT
from motif_jax.stages import train_language
from motif_jax.stages.train_language.manual import MANUAL
from motif_jax.transcripts.imports import import_episodes
from motif_jax.transcripts.store import are_decision_points

pytestmark = pytest.mark.quick


def only_goals(monkeypatch, count):
    for name, number in (("WORDS", 0), ("PAIRS", 0), ("GOALS", count)):
        monkeypatch.setattr(module, name, number)


def test_exercises_with_goals_name_no_pair_that_is_held_out(monkeypatch):
    held = sorted({word for pair in HELD_OUT for word in pair.split()})
    few = [*held, *(f"word{number}" for number in range(40 - len(held)))]  # an exercise takes 40
    only_goals(monkeypatch, 1000)
    monkeypatch.setattr(module, "all_words", lambda: few)
    prompts = [episode.turns[0].text for episode in make_exercises([], window=1)]
    goals = [prompt[: prompt.index("\n")] for prompt in prompts]  # up to a space
    assert not any(f" {pair} " in goal for goal in goals for pair in HELD_OUT)


def test_they_are_imported_before_the_lessons_of_the_same_manual(monkeypatch, tmp_path):
    only_goals(monkeypatch, 3)
    monkeypatch.setattr(module, "LESSONS", 1)
    env = {"babyai": {"window": 1}}
    files = EXERCISES.find(["goto"])
    assert files == [SHIPPED / "goto.toml"]
    plain = [episode for episode in MANUAL.episodes(files, env, 0) if any(turn.is_action for turn in episode.turns)]
    made = list(EXERCISES.episodes(files, env, 0))
    assert {episode.turns[:2] for episode in plain} <= {episode.turns[:2] for episode in made}
    assert len(made) > len(plain) + 3
    transcripts = import_episodes(made, tmp_path / "transcripts", {"format": "exercises"} | EXERCISES.about(env, 0))
    assert not are_decision_points(transcripts)  # they have several turns of the agent


def test_their_config_reads_them_without_marks_and_refuses_players_that_read_nothing():
    config = get_config("exercises", "goto_local")
    check_stage(train_language, config)
    config.transcripts.template = "words"
    refusal(lambda: check_stage(train_language, config), match="right after the prompt, without the mark")
    refusal(lambda: get_config("exercises", "goto_local,unread"), match="'unread', which has no exercises")
