import json
import shutil
import zlib
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest
from conftest import get_config, is_complete, run_stage
from report_workdir import EVENTS, make_replay, tell, write_policy, write_reward, write_workdir

from motif_jax.files import read_json, write_json
from motif_jax.pages.blocks import Paragraph, drawn
from motif_jax.pages.players import read_results
from motif_jax.run import Facts, Judge, Run
from motif_jax.screens import SHOWN
from motif_jax.stages import report
from motif_jax.stages.collect import report_pairs
from motif_jax.stages.evaluate.results import pack
from motif_jax.stages.train_policy.page import report_training

pytestmark = pytest.mark.quick
HOSTILE = (
    "<script>window.hacked = 1</script>", "</script><img src=x onerror=window.hacked=1>", '"><b onclick="x">&amp;',
    "'; alert(1) //\x1b[31m\x01\x9b", "${window.hacked = 1}", "<!--", "]]>",
)  # fmt: skip


class Seen(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_workdir(tmp_path_factory.mktemp("whole") / "gold")


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "gold")


def settings(runs: str = "", **values):
    return get_config("quickstart.py", report__runs=runs, **{f"report.{name}": values[name] for name in values})


def make(workdir, runs: str = "") -> str:
    run_stage(report, settings(runs), workdir)
    return (workdir / "report/index.html").read_text()


def test_the_page_has_the_sections_of_all_stages(whole):
    seen = Seen(make(whole))
    assert [attrs["id"] for tag, attrs in seen.tags if tag == "h2"] == [
        "watch-it-play", "evaluation", "training-the-agent", "the-reward", "preferences", "the-dataset",
        "what-it-ran-on",
    ]  # fmt: skip
    summary = read_results(whole)["policy-2000"]
    score = summary["figures"]["score"]
    assert score["mean"] == 34.5  # 30, 31, ..., 39
    for words in (
        "An agent for gold", "The rules said for 200 pairs of moments of the game which of the two is better for "
        "gold. A reward learnt from these answers agrees with 90.0% of those that were set aside. The agent was "
        "rewarded by the learnt reward alone, not by the game, and trained for 30,000 steps in 60 seconds on 2 cores. "
        f"In 10 games it scores 34.50 on average (95 % interval {score['low']:.2f} to {score['high']:.2f}), "
        "random play 14.50.", "of all moments, 50% lie below", "the agent is not paid for rewards below",
        "A row is a question that was asked once: how many pairs share it", "The thread that chooses actions",
        "agreement with 40 validation preferences: 95 % interval",
        "60.0% of the time, it prefers the moment with the higher score",
        "killed by a newt 90.0%", "time limit 10.0%", "123,456 parameters", "You kill the newt!",
        "All metrics metric first lowest highest last", "train/mine 0.5 0.5 15 15",
    ):  # fmt: skip
        assert words in seen.text, words
    assert "Not there yet" not in seen.text
    assert "episode/gold" not in seen.text  # never measured


def test_the_first_screen_shows_what_differs_most_from_random_play(whole):
    text = make(whole).partition('class="card"')[2].partition("</header>")[0]
    rows = [words.partition("<")[0] for words in text.split('<div class="what">')[1:]]
    # Before the others what is asked for. Gold, levels and beaten monsters are the same.
    assert rows == ["score", "picks up gold", "learnt return"]


LEARNT, ONLINE, AIM = "train_reward", "train_policy", "with the goal “be kind”"
RULES, QWEN = Facts(judge=Judge(("two oracles",), plural=True), goal="defaultgoal"), Judge(("Qwen",))


@pytest.mark.parametrize(
    ("policy", "reward", "title", "trained"),
    [
        ({}, RULES, "An agent that likes what two oracles like", "by the learnt reward alone, not by the game, and"),
        ({}, Facts(judge=QWEN), "An agent that likes what Qwen likes", "by the learnt reward alone"),
        ({}, Facts(judge=Judge(("A", "B"))), "An agent that likes what A and B like", "by the learnt reward"),
        ({}, Facts(judge=QWEN, goal="be kind"), f"An agent {AIM}", "by the learnt reward alone, not by the game, and"),
        ({}, Facts(), "An agent that likes the learnt reward", "by the learnt reward alone"),  # an imported one
        ({"extrinsic_coefficient": 0.1}, RULES, "An agent that likes the game's own reward and what two oracles like",
         "by the game and the learnt reward and trained"),
        ({"sources": "learnt,explore:0.02,event_idle:-0.005"}, RULES,
         "An agent that likes what two oracles like and newly drawn squares",
         "by the learnt reward, newly drawn squares and event_idle (a penalty), not by the game, and trained"),
        ({"sources": "event_stairs_down:1,event_idle:-0.1"}, None, "An agent that likes stairs down",
         "by event_stairs_down and event_idle (a penalty)"),
        ({"extrinsic_coefficient": 1.0, "intrinsic_coefficient": 0.0}, None,
         "An agent that learnt by playing, from the game's own reward", "by the game alone and trained"),
        ({"sources": "online:0.1"}, None, "An agent that likes what a judge likes", "by a judge's answers alone"),
    ],
)  # fmt: skip
def test_the_title_says_what_was_rewarded(tmp_path, policy, reward, title, trained):
    write_policy(tmp_path, get_config("quickstart.py", **{f"policy.{name}": one for name, one in policy.items()}))
    if reward:
        Run(tmp_path).stage("train_reward", "reward").report(reward)
    report_training(tmp_path)
    facts = report.read_record(tmp_path).facts
    assert facts.title == title
    assert trained in drawn(facts.lead).replace("&#x27;", "'")


def test_the_same_artefacts_make_the_same_page_and_others_another(copy):
    first = make(copy)
    assert is_complete(report, settings(), copy)
    assert make(copy) == first
    assert not is_complete(report, settings(replays=1), copy)
    write_json(copy / "policy/summary.json", read_json(copy / "policy/summary.json") | {"env_steps": 30001})
    report_training(copy)
    assert not is_complete(report, settings(), copy)
    assert make(copy) != first
    (copy / "report/index.html").unlink()
    assert not is_complete(report, settings(), copy)


@pytest.mark.parametrize("stage", ["collect", "annotate", "train_reward", "train_policy", "evaluate", "of_a_plugin"])
def test_a_section_that_any_object_of_a_stage_adds_is_on_the_page(copy, stage):
    def titles():
        return [attrs["id"] for tag, attrs in Seen(make(copy)).tags if tag == "h2"]

    before = titles()
    Run(copy).stage(stage, "elsewhere").section("Mine", Paragraph("said in the middle"), after="Evaluation")
    report_pairs(copy)  # all objects of the stages report again
    write_reward(copy, "lexicon_msg_gold")
    tell(copy)
    behind = before.index("evaluation") + 1
    assert titles() == [*before[:behind], "mine", *before[behind:]]
    assert "<p>said in the middle</p>" in make(copy)
    Run(copy).stage(stage, "elsewhere").section("Mine")  # without blocks
    assert titles() == before


def test_sections_of_an_earlier_version_are_said_to_be_missing(copy, capsys):
    write_json(copy / "sections/collect.json", {"stage": "collect", "part": "", "sections": []})
    make(copy)
    assert "sections' is of an earlier version" in " ".join(capsys.readouterr().out.split())


def test_hostile_text_is_escaped(tmp_path):
    write_workdir(tmp_path / "run", events=HOSTILE, cause=HOSTILE[1])
    write_json(tmp_path / "run/dataset/run.json", {"machine": HOSTILE[2]})
    report_pairs(tmp_path / "run")
    text = make(tmp_path / "run")
    seen = Seen(text)
    scripts = [attrs.get("type", "ours") for tag, attrs in seen.tags if tag == "script"]
    assert scripts == ["application/json"] * 3 + ["ours"] * 2
    assert not [tag for tag, _ in seen.tags if tag in ("img", "iframe", "object", "link")]
    assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
    assert HOSTILE[1] in seen.text  # as text
    assert not set(text) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
    assert str(tmp_path) not in text  # where it was made is nobody's business


def test_a_packed_replay_holds_every_frame():
    replay = make_replay("somebody", EVENTS, {"end_status": "death", "cause": ""}, [])
    packed = pack(replay)
    data, frames, steps = zlib.decompress(b64decode(packed["packed"])), replay.steps + 1, replay.steps

    def take(dtype: str, count: int) -> np.ndarray:
        nonlocal data
        size = np.dtype(dtype).itemsize * count
        array, data = np.frombuffer(data[:size], dtype), data[size:]
        return array

    seen = (replay.chars != ord(" ")) | (replay.colors >= 16)  # the colour of a blank is not
    for kept in (SHOWN[replay.chars], np.where(seen, replay.colors, 0)):
        changes = take("u1", frames * 1920).reshape(frames, 24, 80)
        np.testing.assert_array_equal(np.bitwise_xor.accumulate(changes), kept)
    for name in ("reward", "z", "intrinsic", "value", "probability"):
        np.testing.assert_array_equal(take("<f4", steps), getattr(replay, name))
    np.testing.assert_array_equal(take("<i4", frames), replay.count)
    texts = [packed["messages"][number] for number in take("<i4", frames)]
    assert texts == [bytes(line).rstrip(b"\0").decode() for line in replay.message]
    np.testing.assert_array_equal(take("<i4", steps), replay.action)
    assert (take("<i4", frames) == -1).all()  # it has no pictures
    np.testing.assert_array_equal(take("u1", 2 * frames).reshape(-1, 2), replay.cursor)
    assert not data


def test_several_runs_are_compared_under_unique_names(whole, tmp_path):
    other = write_workdir(tmp_path / "gold", goal="combat")
    make(other)
    text = make(whole, f"{other},{whole}")  # itself is not compared with itself
    seen = Seen(text)
    assert "runs-side-by-side" in [attrs.get("id") for _, attrs in seen.tags]
    names = [f"{path.parent.name}/gold" for path in (whole, other)]
    for name in names:
        assert f"{name} likes most" in seen.text
    links = [attrs["href"] for tag, attrs in seen.tags if tag == "a" and not attrs["href"].startswith(("#", "data:"))]
    for link in links:
        assert (whole / "report" / link).is_file()
    assert any(link.endswith("/gold/report/index.html") for link in links)
    drawn = [json.loads(attrs["data-chart"]) for _, attrs in seen.tags if "data-chart" in attrs]
    assert sum([line["name"] for line in chart["lines"]] == names for chart in drawn) >= 3
