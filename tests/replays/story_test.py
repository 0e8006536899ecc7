"""What is said about an episode, with sums worked out by hand."""

import pytest
from real_replay import made

from motif_jax.replays.story import describe, summary

MESSAGES = ["Hello Agent!", "", "You see here a gold piece.", "", "$ - 7 gold pieces."]


@pytest.mark.quick
def test_sums_are_those_of_all_steps_so_far():
    story = describe(made(MESSAGES, reward=[-1, 2, 0, 7], intrinsic=[0, 1.5, 0, 2]))
    assert story.earned.tolist() == [0, -1, 1, 1, 8]
    assert story.gained.tolist() == [0, 0, 1.5, 1.5, 3.5]
    assert story.learnt
    assert story.rewarded.tolist() == [2, 4]


@pytest.mark.quick
def test_the_summary_lists_messages_by_frequency():
    story = describe(made(MESSAGES, reward=[-1, 2, 0, 7], intrinsic=[0, 1.5, 0, 2]))
    lines = summary(story, 2).splitlines()
    assert lines[0] == "policy-7680, episode 17: killed by a jackal after 4 steps"
    assert lines[1] == "return of the game +8.00, learnt +3.50, score 12, max depth 1"
    assert lines[3].split() == ["times", "reward", "message"]
    assert [line.split() for line in lines[4:]] == [
        ["2", "0", "(none)"], ["1", "+3.00", "You", "see", "here", "a", "gold", "piece."],
    ]  # fmt: skip


@pytest.mark.quick
def test_nothing_that_is_told_moves_the_cursor():
    replay = made(["Hello Agent!", "\x1b[31mred\x1b[2J", "", "", ""], reward=[0, 0, 0, 0])
    replay.about["player"] = "\x1b]0;title\x07"
    told = summary(describe(replay), 10)
    assert "red" in told
    assert all(character.isprintable() or character == "\n" for character in told)
