"""Manuals: readable lessons that become prompts in the world's own form, with the action that is right then."""

import pytest
from conftest import refusal

from motif_jax.envs.babyai.level_settings import BabyAISettings
from motif_jax.envs.babyai.manual import SHIPPED, find_manual, make_examples, read_manual
from motif_jax.envs.babyai.words import ACTION_SETS, CANONICAL, HELD_OUT, REWORDINGS, SCENES, all_words
from motif_jax.envs.babyai.world import BabyAIWorld
from motif_jax.tokens import WordTokeniser

pytestmark = pytest.mark.quick
ONE = """
examples = 3
[goals]
reach = ["go to {the} {thing}"]
[[lesson]]
about = "beside me"
goal = ["reach"]
see = ["You see a {thing} {some} {side}"]
do = ["turn {side}"]
"""


def probes_of(**values):
    return BabyAIWorld(BabyAISettings(**values)).probes


def own_manual(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    return read_manual(tmp_path / "mine.toml")


def test_a_lesson_becomes_prompts_of_the_world_and_actions(tmp_path):
    mine = own_manual(tmp_path, ONE)
    examples = list(make_examples(mine, window=1))
    assert len(examples) == 3
    for prompt, action in examples:
        head, goal, seen, last = prompt.split(" \n ")[0], *prompt.split("\n ")[1:]
        assert head == f"Possible action of the agent: {', '.join(CANONICAL)}"
        assert last == "Action 0: "
        thing = goal.split(" ", 7)[-1].strip()
        (shown,) = [sentence for sentence in seen.split(", ") if thing in sentence]
        assert action == f"turn {shown.split()[-1]}"
    assert list(make_examples(mine, window=1)) == examples  # the same every time
    mixed = [lesson._replace(examples=50) for lesson in read_manual(find_manual("mixed"))]
    goals = [prompt.split("\n")[1] for prompt, _ in make_examples(mixed, 1)]
    assert not any(pair in goal for goal in goals for pair in HELD_OUT)
    assert any("Action 0: turn" in prompt for prompt, _ in make_examples(mine, window=3))


@pytest.mark.parametrize("text", [
    *(f'goals.a = ["{goal}"]\nlesson = [{{goal = ["a"], see = [], do = {do}}}]\nexamples = 1'
      for goal, do in (("{who}", '["x"]'), ("go", '"turn left"'), ("go", "[1]"))),
    "goals.a = []\nlesson = [1]\nexamples = 1",
    "a = " + "[" * 9999,
    *(ONE.replace("3\n", f"{count}\n") for count in (10**12, 0, -1, '"ab"', 250_001, 2.0)),
    *(f"{ONE}weight = {weight}\n" for weight in (10**12, 0, -(10**12), '"ab"', 83_334)),
    ONE.replace("3\n", '"ab"\n') + f"weight = {10**12}\n", f"{ONE}weight = -1\n{ONE[ONE.index('[[') :]}weight = 2",
])  # fmt: skip
def test_a_manual_of_other_forms_is_refused(tmp_path, text):
    refusal(lambda: own_manual(tmp_path, text), match=r"mine.toml' as a manual: .*\(--config.transcripts.import_from\)")


def test_a_tokeniser_of_all_words_knows_manuals_probes_actions_and_rewordings():
    tokeniser = WordTokeniser.from_texts(all_words())
    assert tokeniser.size < 256
    lessons = [lesson._replace(examples=20) for file in SHIPPED.glob("*.toml") for lesson in read_manual(file)]
    texts = [text for example in make_examples(lessons, 2) for text in example]
    texts += [name for names in ACTION_SETS.values() for name in names]
    texts += [word for words in REWORDINGS.values() for word in words.values()]
    for level in ("GoToLocal", "GoToFrench"):
        texts += probes_of(level=level).values()
    unknown = {text for text in texts if 2 in tokeniser.encode(text)}
    assert not unknown


@pytest.mark.differs(
    "glam",
    there="the fixed prompts of `distrib.csv` are 11, or 2, some in sentences of another form: *A wall 2 step left*",
    here="those of `probes.json` are nine others, in the game's sentences",
)
def test_probes_are_prompts_in_the_worlds_words():
    probes = probes_of(actions="rotate", rewording="synonyms")
    assert probes.keys() == SCENES.keys()
    assert len(probes) == 9
    prompt = probes["go to it, 2 steps left"]
    assert "Possible action of the agent: rotate left, " in prompt
    assert "Goal of the agent: go to the vermilion ball" in prompt
    assert "You see a vermilion ball 2 steps left, " in prompt
    carried = probes_of()["open it, with its key, right ahead"]
    assert "You carry a purple key, You see a locked purple door 1 step forward, " in carried
