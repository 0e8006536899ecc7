"""The stages of ILQL on a game of Wordle with few words: collect, train_language, train_values, evaluate."""

import json
import shutil

import numpy as np
import pytest
from conftest import get_config, interrupt, is_complete, refusal, run_stage
from gguf_models import write_gguf
from offline_test import rows

from motif_jax import experiment
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.files import read_json, write_json
from motif_jax.language.config import make_config
from motif_jax.language.hub import read_language_model, write_language_model
from motif_jax.language.model import make_language_model
from motif_jax.offline.recipes import recipe_of
from motif_jax.pages.blocks import Interval, drawn
from motif_jax.pages.figures import HowDecoded, Player
from motif_jax.pages.players import read_players, read_results
from motif_jax.policies import writing
from motif_jax.policies.writing import read_values
from motif_jax.stages import evaluate, train_values
from motif_jax.stages.evaluate.results import _sweep, print_sweep, report_evaluation
from motif_jax.stages.report import write_page_over_seeds
from motif_jax.stages.train_language.model import make_parts, write_model
from motif_jax.stages.train_values import learning
from motif_jax.system.runs import PlannedRun
from motif_jax.transcripts.store import Transcripts

WORDS = ("crane", "slate", "abide", "abode", "blaze", "grape", "grade", "trace")
TINY = {
    "env.world": "wordle", "collect.collector": "repeat*0.6+candidate*0.4", "collect.transcripts": 300,
    "transcripts.template": "marks", "language.tokeniser": "letters",
    "language.width": 16, "language.layers": 1, "language.heads": 2,
    "train_language.max_length": 80, "train_language.batch_size": 8, "train_language.learning_rate": 1e-2,
    "train_values.max_length": 80, "train_values.batch_size": 8, "train_values.learning_rate": 3e-3,
    "train_values.warmup_steps": 2, "train_values.polyak": 0.05, "train_values.num_epochs": 2,
    "train_values.log_every": 5, "train_values.games": 8, "train_values.evaluate_every": 15,
    "decoding.max_tokens": 6, "decoding.betas": "0,4", "decoding.batch_size": 8,
    "evaluate.episodes": 12, "evaluate.num_workers": 0, "evaluate.games_per_worker": 8, "evaluate.replays": "best",
    "evaluate.baselines": "optimal",
}  # fmt: skip


def config_for(folder, **changes):
    words = folder / "words.txt"
    words.write_text("\n".join(WORDS))
    return get_config(**TINY | {"env.options": json.dumps({"words": str(words)})} | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ilql")
    experiment.run(config_for(folder).to_dict(), folder / "run", ["collect", "train_language", "train_values"])
    return folder


@pytest.fixture(scope="module")
def evaluated(trained):
    experiment.run(config_for(trained).to_dict(), trained / "run", ["evaluate"])
    return trained


@pytest.mark.journey
@pytest.mark.differs(
    "ilql",
    there="the loss chooses the checkpoint",
    here="the return of games during training does (`train_values.games`)",
)
def test_the_checkpoint_is_chosen_by_return(trained):
    logged, summary = rows(trained / "run/values"), read_json(trained / "run/values/summary.json")
    assert {"valid_loss", "valid_v", "valid_q", "valid_conservative", "valid_value_mean"} <= logged[0].keys()
    assert {"q", "v", "conservative", "advantage_mean", "gradient_norm"} <= logged[1].keys()
    assert logged[-1]["valid_loss"] < logged[0]["valid_loss"]
    assert (summary["recipe"], summary["epoch"]) == ("ilql", 2)
    logged = [row for row in logged if "valid_return" in row]
    assert len(logged) >= 3
    assert all(-6 <= row["valid_return"] <= 0 for row in logged)
    best = max(logged, key=lambda row: (row["valid_return"], row["steps"]))  # of equal ones the last
    assert summary["checkpoint"] == best["steps"]
    assert (trained / f"run/values/checkpoints/{best['steps']}").is_dir()


@pytest.mark.differs(
    "ilql", there="heads begin near zero", here="they begin at the mean return-to-go of the transcripts"
)
def test_values_begin_at_the_mean_reward_to_go(trained):
    store = Transcripts(trained / "run/transcripts")
    to_go = []
    for number in range(len(store)):
        rewards = [turn.reward for turn in store.episode(number).turns if turn.is_action]
        to_go += [sum(rewards[at:]) for at in range(len(rewards))]
    assert learning.mean_to_go(store) == pytest.approx(np.mean(to_go))
    assert rows(trained / "run/values")[0]["valid_value_mean"] == pytest.approx(np.mean(to_go), abs=0.3)


def test_low_rank_additions_learn_in_place_of_a_models_parameters(trained, tmp_path, capsys):
    model, store = trained / "run/language/model", Transcripts(trained / "run/transcripts")
    config = config_for(
        trained, transcripts__path=str(trained / "run/transcripts"), language__model=str(model), language__lora_rank=2,
        train_values__num_epochs=1, train_values__evaluate_every=0, train_language__learning_rate=1e-1,
        train_values__learning_rate=1e-1, train_values__max_length=40,
    )  # fmt: skip
    experiment.run(config.to_dict(), tmp_path / "run", ["train_language", "train_values"])
    printed = capsys.readouterr().out
    assert "train_language learns 128 parameters: weights" in printed
    assert "train_values learns 3,443 parameters: weights" in printed  # with the heads of the values
    # A guess and its answer have 12 tokens: 40 end within the fourth guess.
    games = [[turn.reward for turn in one.turns if turn.is_action] for one in map(store.episode, range(len(store)))]
    lost = [np.count_nonzero(rewards[3:]) for rewards in games]
    said = f"ilql learns nothing from {sum(lost)} rewards in {np.count_nonzero(lost)} of 300 episodes"
    assert f"{said}, which come after their first 40 tokens; the longest has 74, and monte_carlo" in printed
    figures = [row["valid_loss"] for row in rows(tmp_path / "run/language") if "valid_loss" in row]
    assert figures[-1] < figures[0]

    def changed(before, after):
        before, after = leaves_by_path(before), leaves_by_path(after)
        return {".".join(path[-3:-1]) for path in before if not np.array_equal(before[path], after[path])}

    cloned = [read_language_model(folder)[1] for folder in (model, tmp_path / "run/language/model")]
    assert changed(*cloned) == {"attention.q", "attention.v"}
    values, _ = read_values(tmp_path / "run/values/checkpoints")
    assert changed(cloned[1], values.policy) == set()
    assert changed(values.policy, values.online["trunk"]) == {"attention.q", "attention.v"}
    assert changed(values.policy, values.target["trunk"]) == {"attention.q", "attention.v"}


def test_values_stay_with_the_policy_that_they_were_learnt_for(trained, tmp_path):
    run, config = tmp_path / "run", config_for(trained, train_values__num_epochs=3)
    shutil.copytree(trained / "run", run, ignore=shutil.ignore_patterns("evaluate", "report"))
    (run / "values/summary.json").unlink()
    parts = make_parts(
        config.language, Transcripts(run / "transcripts"), config.train_language, seed=5, recipe=recipe_of("bc")
    )
    write_model(run / "language/model", parts, parts.params)
    before = {file: file.read_bytes() for file in [run / "values/config.json", *(run / "values/policy").iterdir()]}
    refusal(lambda: run_stage(train_values, config, run), "the policy changed since the training")
    assert {file: file.read_bytes() for file in before} == before
    read_values(run / "values/checkpoints")
    write_model(run / "values/policy", parts, parts.params)
    refusal(lambda: read_values(run / "values/checkpoints"), "is not the policy that these values were learnt for")


def test_a_run_that_is_killed_at_its_end_still_ranks_texts(trained, tmp_path, monkeypatch):
    shutil.copytree(trained / "run", tmp_path / "run", ignore=shutil.ignore_patterns("evaluate", "report"))
    folder, config = tmp_path / "run/values", config_for(trained)
    wanted = {name: read_json(folder / name) for name in ("summary.json", "rankings.json")}
    for name in wanted:
        (folder / name).unlink()

    monkeypatch.setattr(learning, "rank_texts", lambda *_: interrupt())
    with pytest.raises(KeyboardInterrupt):
        run_stage(train_values, config, tmp_path / "run")
    monkeypatch.undo()
    assert not is_complete(train_values, config, tmp_path / "run")
    experiment.run(config.to_dict(), tmp_path / "run", ["train_values"])
    again = {name: read_json(folder / name) for name in wanted}
    assert json.dumps(again) == json.dumps(wanted)  # steps are whole numbers


@pytest.mark.journey
def test_each_beta_and_the_scripted_player_have_a_row_with_intervals(evaluated, capsys):
    experiment.run(config_for(evaluated).to_dict(), evaluated / "run", ["evaluate"])
    assert "evaluate: complete" in capsys.readouterr().out
    assert not is_complete(evaluate, config_for(evaluated, decoding__betas="0,4,8"), evaluated / "run")
    assert not is_complete(evaluate, config_for(evaluated, decoding__kinds="sample,greedy"), evaluated / "run")
    (step,) = {path.name.split("-")[1] for path in (evaluated / "run/evaluate").glob("values-*")}
    returns_of = {}
    for name, beta in ((f"values-{step}-beta0", 0.0), (f"values-{step}-beta4", 4.0)):
        summary = read_results(evaluated / "run")[name]
        assert summary["decoding"]["beta"] == beta
        assert summary["recipe"] == "ilql"
        returns = summary["figures"]["return"]
        assert -6 <= returns["low"] <= returns["mean"] <= returns["high"] <= 0
        returns_of[name] = returns["mean"]
    assert read_results(evaluated / "run")["optimal"]["figures"]["return"]["mean"] > -3
    print_sweep(read_players(evaluated / "run"), ["optimal", *returns_of])
    shown = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[-3:]]
    best = max(returns_of, key=lambda name: returns_of[name])
    assert shown == [["optimal", "12"], *([name, "*" if name == best else "12"] for name in returns_of)]


def test_replays_have_probabilities_of_each_letter(evaluated):
    (folder,) = (evaluated / "run/evaluate").glob("values-*-beta4")
    episodes = read_json(folder / "letters.json")["episodes"]
    turns = episodes[str(read_json(folder / "summary.json")["replays"]["best"])]
    assert turns
    for turn in turns:
        letters = "".join(one["token"] for one in turn["tokens"]).removesuffix("end")
        assert letters == turn["said"]
        for one in turn["tokens"]:
            for kind in ("policy", "shifted"):
                assert sum(odds for _, odds in one[kind]) <= 1.001
                assert all(len(name) == 1 or name == "end" for name, _ in one[kind])
    assert any(one["policy"] != one["shifted"] for turn in turns for one in turn["tokens"])


def test_reports_compare_betas_and_show_each_letter_escaped(evaluated, tmp_path):
    runs = [PlannedRun("", seed, ()) for seed in (0, 1)]
    for run in runs:
        shutil.copytree(evaluated / "run", tmp_path / run.folder)
    workdir = tmp_path / runs[0].folder
    (folder,) = workdir.glob("evaluate/values-*-beta4")
    letters = read_json(folder / "letters.json")
    next(iter(letters["episodes"].values()))[0]["tokens"][0]["policy"][0][0] = "<script>"
    write_json(folder / "letters.json", letters)
    report_evaluation(workdir, read_players(workdir))
    experiment.run(config_for(evaluated).to_dict(), workdir, ["report"])
    page = (workdir / "report/index.html").read_text()
    assert "A language model that learnt from recorded games of wordle" in page
    assert "A language model learnt from them by <b>ilql</b>, and writes" in page
    assert "Return against beta" in page
    assert "beta 4, sampled: game " in page
    assert "&lt;script&gt;" in page
    assert "<b>beta 4, sample</b> against beta 0, sample" in write_page_over_seeds(runs, tmp_path).read_text()


@pytest.mark.quick
def test_every_scripted_player_is_a_line_beside_the_decodings():
    def player(value, **own):
        return Player("", 0, False, 4, "wordle", {"return": Interval(value, value - 1, value + 1)}, **own)

    decoded = [player(-beta, decoding=HowDecoded("sample", beta))._replace(path=".") for beta in (4.0, 2.0)]
    chart = drawn(_sweep([*decoded, player(-5.25, name="montecarlo"), player(-6.5, name="own")], decoded))
    assert "montecarlo: -5.25" in chart
    assert "own: -6.5" in chart


def test_a_sweep_compiles_one_program(trained, tmp_path, monkeypatch):
    made = []

    def counted(*arguments, real=writing.make_program):
        program = real(*arguments)
        return lambda *inputs: made.append(1) or program(*inputs)  # appends when it is traced, and then compiled

    monkeypatch.setattr(writing, "make_program", counted)
    shutil.copytree(trained / "run", tmp_path / "run", ignore=shutil.ignore_patterns("evaluate"))
    config = config_for(trained, decoding__betas="0,4", decoding__kinds="sample,greedy", evaluate__episodes=4)
    experiment.run(config.to_dict(), tmp_path / "run", ["evaluate"])
    assert len(list((tmp_path / "run/evaluate").glob("values-*"))) == 4
    assert len(made) == 1


@pytest.mark.quick
@pytest.mark.parametrize(("tokeniser", "template", "said"), [
    ("letters", "words", "is for tokenisers whose tokens are words"),
    ("bytes", "marks", "one token, not 4"),
    ("file", "words", "is for tokenisers whose tokens are words"),
])  # fmt: skip
def test_templates_whose_texts_have_no_end_are_refused_before_anything_is_played(tmp_path, tokeniser, template, said):
    changes = {"language__tokeniser": tokeniser} if tokeniser in ("words", "letters") else {}
    if tokeniser == "bytes":
        tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
        letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: at for at, letter in enumerate(letters)}, []))
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.save(str(tmp_path / "tokenizer.json"))
        write_language_model(tmp_path, make_language_model(make_config("gpt2", 256, 8, 1, 2), seed=0))
        changes = {"language__model": str(tmp_path)}
    if tokeniser == "file":
        changes = {"language__model": str(write_gguf(tmp_path / "m.gguf"))}
    config = config_for(tmp_path, transcripts__template=template, **changes)
    stages = ["collect", "train_language", "train_values"]
    refusal(lambda: experiment.run(config.to_dict(), tmp_path / "run", stages), said, "--")
    assert not (tmp_path / "run").exists()


@pytest.mark.quick
def test_without_a_policy_or_values_the_stage_that_makes_them_is_named(tmp_path):
    experiment.run(config_for(tmp_path).to_dict(), tmp_path / "run", ["collect"])
    for stage, first in (("train_values", "train_language"), ("evaluate", "train_values")):
        values = config_for(tmp_path).to_dict()
        refusal(lambda: experiment.run(values, tmp_path / "run", [stage]), f"run --stage={first} first")
