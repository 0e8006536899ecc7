"""Visual dialogue: the world that answers by itself, and the client of the original's server."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG_S
from lies import ESCAPE, nothing_is_printed, reply  # noqa: F401  a fixture
from world_server import WorldServer

from motif_jax.actors.recorder import play_episodes
from motif_jax.contrib.guessing.world import ATTRIBUTES, RULES, LocalAnswerer, Scene, Utterance, draw_scene, one_hot
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import make_world
from motif_jax.structs import EndStatus, UserError

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("few_tries")]
SCENE = Scene("a dog in a park", None, {
    "animal": "dog", "place": "park", "weather": "sunny", "color": "black", "people": "two", "action": "running",
    "time": "midday", "size": "small",
})  # fmt: skip


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    """Three dialogues in the original's layout, with features."""
    rng = random.Random(0)
    scenes = [draw_scene(rng) for _ in range(3)]
    said = [{"question": "is it day", "answer": "yes"}] * 10
    dialogues = [{"caption": scene.caption, "dialog": said, "image_id": 5} for scene in scenes]
    (tmp_path / "visdial_0.5_val.json").write_text(json.dumps(dialogues))
    np.save(tmp_path / "features.npy", 7.5 * np.stack([one_hot(scene.attributes) for scene in scenes]))
    return {"scenes": str(tmp_path / "visdial_0.5_val.json"), "features": str(tmp_path / "features.npy")}


def remote(url: str, files: dict[str, str], **options):
    return local(**{"server": url, "timeout_s": LONG_S, "patience_s": LONG_S} | files | options)


def local(**options):
    return make_world({"world": "guessing", "options": json.dumps(options)})


def play(world, *texts: str, episode: int = 0):
    game = world.game()
    game.reset(game_seed(1, SeedStream.COLLECT, episode), episode)
    return game, [game.step(text) for text in texts if not game.end]


# ---- the world by itself


@pytest.mark.parametrize(("question", "answer", "told"), [
    ("What is the weather?", "sunny", {"weather"}),
    ("weather and time, please", "sunny midday", {"weather", "time"}),
    ("is it sunny?", "yes", {"weather"}),
    ("is it sunny or rainy?", "yes", {"weather"}),
    ("", "no", set()),
    ("what animal is it?", "dog", set()),  # the caption has told that
])  # fmt: skip
def test_a_question_is_answered_from_the_scene(question, answer, told):
    said, change = LocalAnswerer().answer(SCENE, [Utterance("question", question)], 0.25)
    assert said == answer
    assert change == len(told) / len(ATTRIBUTES)


def test_a_dialogue_ends_when_enough_is_known():
    """2 of 8 attributes are told by the caption; 3 of the other 6 are half of what there is to gain."""
    game, rewards = play(local(), "the weather?", "hm?", "the time?", "the color?")
    assert rewards == [-1.0, -1.0, -1.0, 0.0]
    assert game.end == EndStatus.TASK_SUCCESSFUL
    assert game.info().figures == (5 / 8, 0)
    assert game.info().episode_return == -3.0


@pytest.mark.differs(
    "ilql",
    there="rewards may be changes of rank alone (`10_stop`)",
    here="`gain_scale` adds them to the -1 of each question",
)
def test_mere_yes_and_no_can_be_punished_and_gains_rewarded():
    game, rewards = play(local(rule="hard", yes_no_reward=-2.0, gain_scale=8.0, enough=1.0), "hm?", "the weather?")
    assert rewards == [-3.0, 0.0]  # -1 - 2, and -1 + 8 * 1/8
    assert game.info().figures == (3 / 8, 1)


@pytest.mark.differs(
    "ilql",
    there="the rule `conservative` searches for 17 fragments of answers",
    here="it searches for fragments of our own choice",
)
def test_rules_are_plain_substrings():
    answers = {"yes": "shc", "no": "shc", "snow": "sc", "two": "", "maybe": "c", "yes, two": "sc", "cannot tell": "sc"}
    for answer, rules in answers.items():
        assert {name[0] for name, rule in RULES.items() if name != "standard" and rule(answer)} == {*rules}, answer
        assert not RULES["standard"](answer)


# ---- through a server


@pytest.mark.differs(
    "ilql",
    there="a policy may ask a server for its questions (`fetch_q_bot_response`)",
    here="scripted players ask; only answers come from a server",
)
@pytest.mark.differs(
    "ilql",
    there="rewards may be changes of the distance to the picture (`step`), until the agent stops",
    here="a server measures ranks (`step_rank`), and the world ends the dialogue",
)
@pytest.mark.differs(
    "ilql", there="the dialogues' bots are not available", here="their protocol has a client and a local stand-in"
)
def test_dialogues_through_a_server_use_the_wire_format_of_the_original(files):
    with WorldServer() as server:
        world = remote(server.url, files)
        world.check()
        assert not server.asked  # nothing is asked before a game begins
        episodes = list(play_episodes(world, "asker+checker", range(6), seed=0))
    assert {episode.turns[0].text for episode in episodes} <= {
        e["caption"] for e in json.loads(Path(files["scenes"]).read_text())
    }
    for episode in episodes:
        assert episode.terminal
        assert [turn.is_action for turn in episode.turns] == [False, *[True, False] * (len(episode.turns) // 2)]
        assert episode.turns[-2].reward == 0
    assert {path for path, _ in server.asked} == {"/fetch_reward_rank", "/step_rank"}
    # What was sent is the original's wire format: form fields, JSON but for the caption.
    path, fields = server.asked[-1]
    assert path == "/step_rank"
    assert fields.keys() == {"history", "caption", "img_features", "generation_kwargs"}
    history = json.loads(fields["history"])
    assert [said["speaker"] for said in history] == [*["question", "answer"] * (len(history) // 2), "question"]
    assert [said["text"] for said in history] == [turn.text for turn in episodes[-1].turns[1:-1]]
    features = json.loads(fields["img_features"])
    assert np.linalg.norm(features) == pytest.approx(1.0, abs=1e-5)
    assert fields["caption"] == episodes[-1].turns[0].text


@pytest.mark.parametrize("value", ["null", '["yes", NaN]', '[["yes"], 0.1]'])
def test_invalid_answers_of_a_server_are_refused(value, files):
    with (
        WorldServer(lambda number, path: reply(value) if path == "/step_rank" else None) as server,
        pytest.raises(UserError, match="its reply does not have the expected format"),
    ):
        play(remote(server.url, files), "hm?")


@pytest.mark.differs(
    "ilql", there="rules read an answer as sent", here="spaces around it and line breaks are removed first"
)
def test_an_answer_is_stripped_before_the_rule_reads_it(files):
    with WorldServer(lambda n, path: reply(json.dumps([" Yes\n", 0.0])) if path == "/step_rank" else None) as server:
        game, rewards = play(remote(server.url, files, rule="hard", yes_no_reward=-2.0), "hm?")
        game.close()
    assert (game.heard, rewards) == ("Yes", [-3.0])


@pytest.mark.parametrize("text", [ESCAPE, "\ud800 half", "x" * 100_000, "\u202eright to left"])
def test_any_answer_becomes_one_harmless_line(text, files):
    with WorldServer(lambda n, path: reply(json.dumps([text, 0.0])) if path == "/step_rank" else None) as server:
        game, _ = play(remote(server.url, files), "hm?")
        game.close()
    assert game.heard.isprintable()
    assert len(game.heard.encode()) <= 1024
    assert game.message.decode("latin-1").isprintable() or "\xad" in game.message.decode("latin-1")
    game.screen()


# ---- bad input


@pytest.mark.parametrize("text", ["", '[{"caption": 5}]', "[" * 100_000])
def test_scenes_that_cannot_be_read_are_refused(tmp_path, text):
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(UserError, match=r"cannot read the scenes '.*broken.json': .*\(--config.env.options\)$"):
        remote("http://127.0.0.1:9", {"scenes": str(tmp_path / "broken.json")}).check()
