"""Conversations that others have published, TRL's formats both ways, and files that only look like them."""

import csv
import json
from pathlib import Path

import pytest
from conftest import refusal

from motif_jax.structs import Episode, Turn
from motif_jax.transcripts import imports
from motif_jax.transcripts.imports import read_lmrl, read_trl

pytestmark = pytest.mark.quick


def refused(read, *names):
    refusal(lambda: list(read()), "--config.transcripts.import_from", *names)


# ---- LMRL-Gym


def lines(tmp_path, *rows):
    file = tmp_path / "games.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def test_lmrl_rewards_stand_beside_all_texts_or_all_but_the_first(tmp_path):
    sequence = [["Wordle:\n", 0], ["c r a n e\n", 1], ["b b y b g\n", False], ["a b i d e\n", True]]
    wanted = (Turn("Wordle:\n"), Turn("c r a n e\n", -1.0), Turn("b b y b g\n"), Turn("a b i d e\n", 0.0))
    whole = {"sequence": sequence, "reward": [0.0, -1.0, 0.0, 0.0], "done": True}
    file = lines(tmp_path, whole, "", {"sequence": sequence, "reward": [-1, 0.0, 0.0], "done": False})
    assert list(read_lmrl(file)) == [Episode(wanted, True), Episode(wanted, False)]


def test_lmrl_games_of_wordle_are_written_as_the_world_writes_them(tmp_path):
    """The last but one guess is no word of theirs, and gets an empty line."""
    texts = ["Wordle:\n", "c r a n e\n", "b b y b g\n", "z z\n", "\n", "a b i d e\n", "g g g g g\n"]
    sequence = [[text, float(index % 2)] for index, text in enumerate(texts)]
    file = lines(tmp_path, {"sequence": sequence, "reward": [-1.0, 0.0, -10.0, 0.0, 0.0, 0.0], "done": True})
    turns = (Turn("crane", -1.0), Turn("<b><b><y><b><g>"), Turn("zz", -10.0), Turn("abide", 0.0),
             Turn("<g><g><g><g><g>"))  # fmt: skip
    assert list(imports.read_lmrl_wordle(file)) == [Episode(turns, True)]
    row = {"sequence": [["Wordle:\n", 0], ["c r a n e\n", 1], ["b b x b g\n", 0]], "reward": [0, 0], "done": False}
    refused(lambda: imports.read_lmrl_wordle(lines(tmp_path, row)), "line 1 of", "'b b x b g", "not five colours")
    refused(lambda: imports.read_lmrl_wordle(lines(tmp_path, ROW)), "does not begin with 'Wordle:'")


ROW = {"sequence": [["a", 0], ["b", 1]], "reward": [0.0, 1.0], "done": True}


@pytest.mark.parametrize("row", [
    "{", "[]", "NaN", "[" * 5000, "\x00", ROW | {"reward": [1.0, 1.0]}, ROW | {"reward": [0.0, None]},
    ROW | {"reward": [0.0, 10**400]}, ROW | {"reward": []}, ROW | {"sequence": [["a", "no"]]}, ROW | {"reward": 5},
    *(ROW | {"sequence": [["a", 0], turn]} for turn in ([7, 1], ["\ud800", 1], [None, 1], ["b"], "b1", 7, ["b", [1]])),
    *(ROW | {"done": done} for done in ("false", None, [])), {"sequence": [["a", 1]], "reward": [1.0]},
], ids=lambda row: str(row)[:40])  # fmt: skip
def test_lines_that_are_no_episode_are_named(tmp_path, row):
    file = lines(tmp_path, ROW, row)
    refused(lambda: read_lmrl(file), "line 2 of", str(file))


@pytest.mark.parametrize("what", ["none", "folder", "bytes"])
def test_files_that_cannot_be_read_are_named(tmp_path, what):
    file = tmp_path / what
    if what == "folder":
        file.mkdir()
    elif what == "bytes":
        file.write_bytes(b"\xff\xfe\x80" * 9)
    for read in (read_lmrl, imports.read_visdial, lambda file: imports.read_reddit([file])):
        refused(lambda read=read: read(file), str(file))


# ---- visual dialogue


def dialogue(rounds=10):
    questions = [{"question": f"is it {index}", "answer": "yes" if index % 2 else "no"} for index in range(rounds)]
    return {"caption": "a cat", "dialog": questions}


def read_visdial(tmp_path, dialogues, ranks=None):
    files = tmp_path / "dialogues.json", tmp_path / "ranks.json"
    for file, content in zip(files, (dialogues, ranks), strict=True):
        file.write_text(json.dumps(content))
    return list(imports.read_visdial(files[0], None if ranks is None else files[1]))


def test_a_dialogue_costs_one_per_question_and_ends_when_half_of_what_was_hidden_is_found(tmp_path):
    """The ranks: 0.2 at first, so 0.8 are left; after 0.1 + 0.3 = half of it, the second answer ends it."""
    turns = Turn("a cat"), Turn("is it 0?", -1.0), Turn("no"), Turn("is it 1?", -1.0), Turn("yes")
    turns += Turn("is it 2?", 0.0), Turn("no")
    assert read_visdial(tmp_path, [dialogue(3)]) == [Episode(turns, True)]
    (episode,) = read_visdial(tmp_path, [dialogue()], [[0.2, 0.1, 0.3, *[0.0] * 8]])
    assert [turn.reward for turn in episode.turns if turn.is_action] == [-1.0, 0.0]
    (whole,) = read_visdial(tmp_path, [dialogue()], [[0.2, *[0.01] * 10]])
    assert whole.episode_return == -9


@pytest.mark.parametrize(("dialogues", "ranks"), [
    ({}, None), ([{"caption": "a", "dialog": [3]}], None), ([dialogue(1)], []), ([dialogue(1)], [[0.1, "x"]]),
    ([dialogue(1)], [[0.1, float("inf")]]), ([{"caption": "a", "dialog": [{"question": 3, "answer": "a"}]}], None),
    ([7], None), ([dialogue(1)], [7]), ([dialogue(1) | {"caption": 7}], None),
    ([dialogue(1) | {"caption": "\ud800"}], None),
    ([{"caption": "a", "dialog": [{"question": "is it", "answer": None}]}], None),
], ids=lambda row: str(row)[:40])  # fmt: skip
def test_files_that_are_no_dialogues_are_refused(tmp_path, dialogues, ranks):
    refused(lambda: read_visdial(tmp_path, dialogues, ranks), "dialogues.json")


def test_more_than_two_files_of_dialogues_are_refused():
    refused(lambda: imports.VISDIAL.episodes([Path("a.json")] * 3, {}, 0), "one of ranks, not 3 files")


# ---- comments


def comments(tmp_path, *rows, header=("id", "subreddit", "text", "score", "parent_text"), name="comments.csv"):
    file = tmp_path / name
    with open(file, "w", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])
    return file


def test_comments_answer_others_and_are_rewarded_by_votes(tmp_path):
    one = comments(tmp_path, ("1", "a", 'nice,\n"really"', "3", "what?"), ("2", "a", "bad", "0", "why"))
    two = comments(tmp_path, ("3", "a", "worse", "-7", ""), name="two.csv")
    by_votes = list(imports.read_reddit([one, two]))
    assert by_votes[0] == Episode((Turn("what?"), Turn('nice,\n"really"', 1.0)), True, {"score": 3.0})
    assert [episode.turns[1].reward for episode in by_votes] == [1.0, -1.0, -1.0]


@pytest.mark.parametrize(("rows", "header", "sentence"), [
    ([("a", "b")], ("text", "score", "parent_text"), "as a comment: it has 2 values, and the first line 3"),
    ([("a", "1")], ("text", "score"), "line 2 of"), ([("a", "1")], ("text", "score"), "it has no 'parent_text'"),
    ([("a", "many", "b")], ("text", "score", "parent_text"), "'many'"),
    ([("a" * 200_000, "1", "b")], ("text", "score", "parent_text"), "is not CSV"),
])  # fmt: skip
def test_lines_that_are_no_comment_are_named(tmp_path, rows, header, sentence):
    file = comments(tmp_path, *rows, header=header)
    refused(lambda: imports.read_reddit([file]), str(file), sentence)


# ---- to a store


def test_imported_episodes_keep_their_provenance(tmp_path):
    store = imports.import_episodes(read_lmrl(lines(tmp_path, ROW, ROW)), tmp_path / "transcripts", {"format": "lmrl"})
    assert len(store) == 2
    assert store.record["provenance"] == {"format": "lmrl"}
    empty, files = tmp_path / "other", {"files": ["games.jsonl"]}
    for rows in ((), ("", " ")):
        episodes = read_lmrl(lines(tmp_path, *rows))
        nothing = "there is no episode in 'games.jsonl', so nothing was written to "
        refused(lambda episodes=episodes: imports.import_episodes(episodes, empty, files), nothing, str(empty))


@pytest.mark.parametrize(("turn", "sentence"), [
    (Turn("a", float("nan")), "nan"), (Turn("a", 1e39), "1e+39 is not finite"), (Turn("\ud800", 1.0), "surrogates"),
    (Turn(["a"], 1.0), "a turn says ['a'], which is no text"),
])  # fmt: skip
def test_episodes_that_a_store_cannot_hold_are_refused_by_their_number(tmp_path, turn, sentence):
    episodes = [Episode((Turn("what?"), turn), True)]
    refused(lambda: imports.import_episodes(episodes, tmp_path / "transcripts", {}), "episode 0", sentence)
    ended = [Episode((Turn("a", 1.0),), "false")]
    refused(lambda: imports.import_episodes(ended, tmp_path / "transcripts", {}), "episode 0", "'false'")


def say(role, content):
    return {"role": role, "content": content}


def test_labels_and_rewards_are_read(tmp_path):
    labels = lines(tmp_path, *({"prompt": "a", "completion": "b", "label": label} for label in (True, False)))
    assert [episode.turns[-1].reward for episode in read_trl(labels)] == [1.0, -1.0]
    rewards = lines(tmp_path, {"messages": [say("assistant", "x")], "rewards": [2.0], "label": None})
    assert [episode.turns[-1].reward for episode in read_trl(rewards)] == [2.0]


def test_a_conversation_of_ten_megabytes_is_read(tmp_path):
    text = "well " * 2_000_000
    file = lines(tmp_path, {"messages": [say("user", text), say("assistant", "b")], "reward": 1})
    assert [*read_trl(file)] == [Episode((Turn(text), Turn("b", 1.0)), terminal=True)]


def test_texts_and_implicit_prompts_are_read(tmp_path):
    file = lines(
        tmp_path, {"prompt": "2 + 2?", "completion": "4", "reward": 1},
        {"chosen": [say("user", "a"), say("assistant", "b")], "rejected": [say("user", "a"), say("assistant", "c")]},
        {"messages": [say("system", "s"), say("assistant", "x"), say("tool", "t"), say("assistant", "y")], "reward": 3},
    )  # fmt: skip
    first, chosen, rejected, last = (episode.turns for episode in read_trl(file))
    assert first == (Turn("2 + 2?"), Turn("4", 1.0))
    assert (chosen[-1], rejected[-1]) == (Turn("b", 1.0), Turn("c", -1.0))
    assert [turn.reward for turn in last] == [None, 0.0, None, 3.0]


@pytest.mark.parametrize(("row", "sentence"), [
    ([1], "it is a list, not an object: [1]"), ({"x": 1}, "neither messages, nor a prompt"),
    ({"messages": "hello"}, "the assistant says nothing"),
    ({"messages": [say("king", "x")]}, "'role' is 'king', not one of system"),
    ({"messages": [say("assistant", [{"type": "image"}])]}, "'content' is a list, not a text: [{'type': 'image'}]"),
    ({"messages": [say("assistant", 17)]}, "'content' is a number, not a text: 17"),
    ({"messages": [say("assistant", None)]}, "'content' is null, not a text"),
    ({"messages": [{"role": "assistant"}]}, "it has no 'content'"), ({"messages": ["hello"]}, "'hello' is a text, not"),
    ({"messages": 5}, "'messages' is a number, not a text or a list: 5"),
    ({"messages": {"role": "assistant", "content": "x"}}, "'messages' is an object, not a text or a list"),
    ({"messages": [say(["assistant"], "x")]}, "'role' is a list, not a text"),
    ({"messages": [say("assistant", "\ud800")]}, "surrogates not allowed"),
    ({"messages": [say("assistant", "x")], "done": "no"}, "whether it ended by itself is 'no'"),
    ({"messages": [say("assistant", "x")], "reward": 10**400}, "not numbers"),
    ({"messages": [say("assistant", "x")], "label": [True]}, "'label' is a list, not true or false: [True]"),
    ({"prompt": [say("user", "x")], "completion": [say("user", "y")]}, "the assistant says nothing in 'completion'"),
    ({"prompt": None, "completion": "y"}, "'prompt' is null"), ({"chosen": 1, "rejected": "y"}, "'chosen' is a number"),
    ("17", "it is a number, not an object: 17"), ("null", "it is null"), ('["messages"]', "it is a list"),
    ({"messages": [say("assistant", "x")], "reward": "good"}, "its rewards are ['good'], not numbers"),
    ({"messages": [say("assistant", "x" * 2**24)]}, "is longer than 16,777,216 bytes"),
    ({"messages": [say("assistant", "x")], "rewards": [1, 2]}, "its rewards are [1, 2], for 1 turns"),
    ({"messages": [say("assistant", "x")], "rewards": {"0": 0.25}}, "its rewards are {'0': 0.25}, not numbers"),
    ({"prompt": "x", "completion": "y", "label": None}, "None"),
    ("{", "as an episode"),
])  # fmt: skip
def test_other_lines_are_refused_by_their_number(row, sentence, tmp_path):
    file = lines(tmp_path, {"prompt": "a", "completion": "b"}, row)
    refused(lambda: read_trl(file), "line 2 of", sentence)
