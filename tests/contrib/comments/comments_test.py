"""Comments: what they are worth by a lexicon, a table and a server, and what cannot be one of these."""

import contextlib
import json

import pytest
from lies import reply
from refusals_test import check_refused
from text_world_test import check_players, check_pool
from world_server import WorldServer

from motif_jax.actors.recorder import play_episodes
from motif_jax.contrib.comments.world import make_scorer, words_of
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.pages import figures
from motif_jax.structs import EndStatus, Meaning, UserError

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("few_tries")]


def world(**options):
    return make_world({"world": "comments", "options": json.dumps(options)})


def write(made, *texts: str) -> list[float]:
    """The rewards of comments, each on a post of its own."""
    rewards = []
    with contextlib.closing(made.game()) as game:
        for number, text in enumerate(texts):
            game.reset(game_seed(0, SeedStream.COLLECT, number), number)
            rewards.append(game.step(text))
            assert game.end == EndStatus.ENDED
            assert len(game.turns) == 2
    return rewards


@pytest.mark.differs(
    "ilql", there="the comments' filter is not available", here="a lexicon, a table or a server scores comments"
)
def test_listed_words_are_counted_to_two(tmp_path):
    (tmp_path / "words.txt").write_text("bad\nawful\n")
    texts = ["", "good", "Bad!", "bad, AWFUL", "bad bad bad", "badly"]
    assert make_scorer(f"lexicon:{tmp_path}/words.txt", None, 1.0, 1.0).score(texts) == [0, 0, 1, 2, 2, 0]
    assert words_of("It's naïve: 5 o'clock") == ["it", "s", "naïve", "o", "clock"]
    assert write(world(), "Thank you!", "How dumb.", "How dumb and how ugly.") == [0.0, -5.0, -10.0]
    assert write(world(scale=2.0, shift=-1.0), "Thank you!", "How dumb.") == [-1.0, 1.0]


def test_a_score_of_one_becomes_zero_or_two_by_chance():
    rewards = write(world(noised=True), *["How dumb."] * 60)
    assert {*rewards} == {0.0, -10.0}
    assert rewards == write(world(noised=True), *["How dumb."] * 60)
    assert write(world(noised=True), "Thank you!", "How dumb and how ugly.") == [0.0, -10.0]


def test_posts_are_a_file_of_ones_own_or_not_shown(tmp_path):
    (tmp_path / "posts.txt").write_text("One post.\n\n  Another. \n")
    mine = world(posts=str(tmp_path / "posts.txt"))
    assert {e.turns[0].text for e in play_episodes(mine, "kind", range(20), seed=0)} == {"One post.", "Another."}
    for episode in play_episodes(world(include_parent=False), "kind", range(3), seed=0):
        assert [turn.is_action for turn in episode.turns] == [True]


def test_a_table_knows_its_texts(tmp_path):
    file = tmp_path / "scores.jsonl"
    file.write_text('{"text": "fine", "score": 1}\n\n{"text": "bad", "score": -1.5, "more": 5}\n')
    assert write(world(scores=f"table:{file}", scale=1.0), "fine", "bad") == [1.0, -1.5]
    assert write(world(scores=f"table:{file}", scale=1.0, unknown=0.25), "else") == [0.25]
    with pytest.raises(UserError, match=r"no score of 'else': set the option 'unknown' \(--config.env.options\)"):
        write(world(scores=f"table:{file}"), "else")


def test_a_server_is_asked_once_about_each_text():
    with WorldServer() as server:
        made = world(scores=f"server:{server.url}", scale=1.0)
        assert write(made, "a!", "b", "a!", "c!!") == [1.0, 0.0, 1.0, 2.0]
        many = [str(number) for number in range(130)]
        made.expect(many)  # in requests of 64
    asked = [fields["texts"] for _, fields in server.asked]
    assert asked == [["a!"], ["b"], ["c!!"], many[:64], many[64:128], many[128:]]


@pytest.mark.parametrize("value", ['{"scores": [1, 2]}', "5", '{"scores": [NaN]}'])
def test_invalid_scores_of_a_server_are_refused(value):
    with (
        WorldServer(lambda number, path: reply(value)) as server,
        pytest.raises(UserError, match="its reply does not have the expected format"),
    ):
        write(world(scores=f"server:{server.url}", patience_s=5.0), "hm")


@pytest.mark.parametrize(("lines", "message"), [
    ('{"text": "a", "score": 1}\n{"text": "b"}', "cannot read line 2 of the table '.*': 'score'"),
    ("[" * 100_000, "cannot read line 1 of the table"),
])  # fmt: skip
def test_tables_that_cannot_be_read_are_refused(tmp_path, lines, message):
    (tmp_path / "scores.jsonl").write_text(lines)
    with pytest.raises(UserError, match=message):
        check_world({"world": "comments", "options": json.dumps({"scores": f"table:{tmp_path}/scores.jsonl"})})


def test_the_world_says_what_its_figure_means():
    made = world()
    assert figures.better("score", made.figures, made.meanings) == "higher"
    assert figures.better("score", made.figures, ()) == ""  # of a world that says nothing
    assert figures.better("success_rate_of_foes", made.figures, ()) == "higher"
    lower = Meaning("success_rate_of_foes", better="lower")
    assert figures.better("success_rate_of_foes", made.figures, [lower]) == "lower"
    assert figures.in_place_of_return(["score"], made.meanings) == "score"
    assert figures.words("score", made.meanings) == ("score", "")
    assert ("episode/score", "Score", "") in figures.curves_of(["episode/score"], made.meanings)


def test_the_world_is_played_like_others():
    check_pool("comments", "kind:1,rude:2")
    check_players("comments")


@pytest.mark.parametrize(("options", "said"), [
    ('{"patience_s": -1}', "patience_s must be a number from"),
    ('{"unknown": "x"}', "unknown must be a number from -1e+0"),
    ('{"scores": 3}', "scores must be text"),
])  # fmt: skip
def test_options_are_checked(options, said, tmp_path):
    check_refused("recording", {"env.world": "comments", "env.options": options}, said, tmp_path)
