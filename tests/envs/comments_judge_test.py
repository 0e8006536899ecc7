"""Comments that a language model scores: a server that answers, one that does not, and what cannot be asked."""

import json

import numpy as np
import pytest
from chat_server import ChatServer
from comments_test import world, write
from lies import LIES, reply, say

from motif_jax.annotation.chat import completion
from motif_jax.envs.comments.judge import Judging
from motif_jax.envs.comments.scores import make_scorer
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.world import step_specs, to_row
from motif_jax.envs.worlds import check_world
from motif_jax.structs import UserError
from motif_jax.transcripts.imports import read_reddit

pytestmark = pytest.mark.quick
WISH = "The comment thanks somebody, politely."
FLAG = r"--config.env.options"


def thanks(number, body):
    """The reply of a model that looks for one word in the comment, whatever it is told."""
    wanted = "thank" in body["messages"][-1]["content"].partition('"comment": ')[2].lower()
    verdict = f'("helpful": {"yes" if wanted else "no"})'
    return reply(json.dumps(completion(f"Let me see. {verdict}", body, [("01"[wanted], 0.75), ("10"[wanted], 0.25)])))


@pytest.fixture
def server(short_pauses):
    with ChatServer(thanks) as chat:
        yield chat


def judged(server, cache="", **options):
    return world(scores=f"judge:{server.url}", goal=WISH, cache_dir=str(cache), patience_s=1.0, **options)


@pytest.mark.differs(
    "ilql",
    there="—",
    here="a language model can score comments, by a goal in one sentence",
    where="motif_jax/envs/comments/judge.py",
)
@pytest.mark.parametrize(("mode", "scores"), [("reason", [1.0, 0.0]), ("score", [0.75, 0.25])])
def test_a_judge_is_told_in_a_sentence_what_is_wished(server, mode, scores):
    assert write(judged(server, mode=mode), "Thank you!", "How dumb.") == pytest.approx(scores)
    assert write(judged(server, mode=mode, scale=-2.0, shift=1.0), "Thank you!") == [1.0 - 2.0 * scores[0]]
    asked = [message["content"] for body in server.asked for message in body["messages"] if message["role"] == "user"]
    assert all(WISH in text for text in asked)
    assert {body["model"] for body in server.asked} == {"judge"}


def test_a_comment_is_judged_once_whatever_asks(server, tmp_path):
    for _ in range(2):  # two runs
        made = judged(server, tmp_path)
        assert write(made, "Thanks!", "No.", "Thanks!") == [1.0, 0.0, 1.0]
        assert write(made, "No.") == [0.0]  # the first game has closed the connections
    assert len(server.asked) == 2
    other = world(scores=f"judge:{server.url}", goal="The comment is short, very short.", cache_dir=str(tmp_path))
    assert write(other, "No.") == [0.0]
    assert len(server.asked) == 3  # another sentence is another question


def test_imported_comments_are_judged_many_at_a_time(server, tmp_path):
    server.delay_s = 0.02
    texts = [f"Thanks, {number}." if number % 3 else f"No, {number}." for number in range(40)]
    (tmp_path / "comments.csv").write_text("text,score,parent_text\n" + "".join(f'"{text}",1,why\n' for text in texts))
    scorer = make_scorer(f"judge:{server.url}", None, 5.0, 5.0, Judging(WISH), cache_dir="")
    try:
        found = [episode.turns[1].reward for episode in read_reddit([tmp_path / "comments.csv"], scorer.score)]
    finally:
        scorer.close()
    assert found == [float(number % 3 > 0) for number in range(40)]
    assert server.most_in_flight > 4


def test_comments_of_games_side_by_side_are_judged_at_once(server):
    server.delay_s = 0.02
    made, names = judged(server), ("heard",)
    vector = made.vector(16, names, seed=0, stream=SeedStream.COLLECT)
    specs = step_specs(made.action) | {name: made.specs[name] for name in names}
    rows = {name: np.zeros((16, *spec.shape), spec.dtype) for name, spec in specs.items()}
    vector.reset()
    texts = [f"{'Thanks' if number % 2 else 'No'}, {number}" for number in range(16)]
    vector.step([to_row(text, made.written) for text in texts], vector.open_rows(rows))
    vector.close()
    assert rows["reward"].tolist() == [float(number % 2) for number in range(16)]
    assert len(server.asked) == 16
    assert server.most_in_flight > 4


def test_a_comment_without_a_verdict_has_the_score_of_unknown_ones(server):
    server.fault = lambda number, body: reply(say("Hard to say."))
    assert write(judged(server, unknown=0.5), "hm") == [0.5]
    asked = len(server.asked)
    made = judged(server, unknown=0.5)
    made.expect(["hm", "so"])
    assert write(made, "hm", "so") == [0.5, 0.5]
    assert len({json.dumps(body) for body in server.asked[asked:]}) == len(server.asked[asked:])  # each only once
    with pytest.raises(UserError, match=rf"no verdict on 'hm', .*Hard to say.*option 'unknown' \({FLAG}\)"):
        write(judged(server), "hm")


def test_a_judge_without_log_probabilities_is_told_by_the_name_of_the_option(server):
    server.fault = lambda number, body: reply(say("(1)"))
    with pytest.raises(UserError, match="no log-probabilities") as caught:
        write(judged(server, mode="score"), "hm")
    assert "annotate" not in str(caught.value)


@pytest.mark.parametrize("name", ["endless body", "dripping headers"])
def test_a_judge_that_lies_ends_it_with_one_sentence(server, name):
    server.fault = lambda number, body: LIES[name]()
    with pytest.raises(UserError, match=rf"{server.url}' has answered nothing .*{FLAG}: scores") as caught:
        write(judged(server, timeout_s=0.2), "hm")
    assert str(caught.value).isprintable()
    assert "annotate" not in str(caught.value)


def test_a_judge_that_is_not_there_is_named(server):
    made = judged(server)
    server.stop()
    try:
        with pytest.raises(UserError, match=rf"does not answer: .*\({FLAG}: scores\)"):
            write(made, "hm")
    finally:
        server.start()


@pytest.mark.parametrize(("options", "said"), [
    ({"goal": ""}, r"the option 'goal' must be a sentence that tells a judge what comments should be like, not ''"),
    ({"goal": "kind"}, "should be like, not 'kind'"),
    ({"goal": 5}, "goal must be text, not 5"),
    ({"mode": "guess"}, "unknown mode 'guess'"),
    ({"scores": "judge:127.0.0.1:80"}, "'127.0.0.1:80' is not an address such as"),
    ({"scores": "judge:http://me:secret@127.0.0.1/v1"}, "must hold no user name, password or query"),
    ({"scores": "judge:"}, "scores come from"),
    ({"key_variable": "sk-123"}, "not the key itself"),
    ({"cache_dir": 5}, "cache_dir must be text"),
    ({"noised": True}, "which a judge does not give"),
])  # fmt: skip
def test_judges_that_cannot_be_asked_are_refused_before_anything_starts(options, said):
    given = {"scores": "judge:http://127.0.0.1:9/v1", "goal": WISH} | options
    with pytest.raises(UserError, match=rf"{said}.*{FLAG}") as caught:
        check_world({"world": "comments", "options": json.dumps(given)})
    assert "annotate" not in str(caught.value)
