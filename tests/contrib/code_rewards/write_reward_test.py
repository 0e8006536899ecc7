import contextlib
import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
from backends_test import LongerAnnotator
from chat_server import ChatServer
from conftest import ROOT, check_stage, get_config, interrupt, refusal, run_stage, viewed
from train_policy_test import TINY

from motif_jax import experiment
from motif_jax.contrib.code_rewards import job, stage, writers
from motif_jax.contrib.code_rewards.grammar import check
from motif_jax.contrib.code_rewards.guide import longest_phrase
from motif_jax.contrib.code_rewards.names import find_readable
from motif_jax.contrib.code_rewards.stage import stages_of
from motif_jax.contrib.code_rewards.writers import Attempt, Brief, GuidedWriter, ScriptedWriter, examples, talk
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json
from motif_jax.language.config import make_config
from motif_jax.language.hub import write_language_model
from motif_jax.language.model import make_language_model
from motif_jax.pages.blocks import drawn
from motif_jax.rewards.source import Setting, make_sources
from motif_jax.stages import train_policy
from motif_jax.stages.evaluate import play
from motif_jax.structs import UserError
from motif_jax.tokens import LetterTokeniser, write_tokeniser

READABLE = find_readable(make_world({"world": "treasure"}))
PROSE = "Certainly! Here is a reward that encourages the agent to collect gold."


def config_of(**values):
    config = experiment.defaults()
    config.stages, config.env.world = ("train_policy", "evaluate", "report"), "treasure"
    config.policy.update({
        "network": "general", "rollout_length": 64, "warmup_steps": 0, "wait_for_learner": True, "num_minibatches": 4,
        "learning_rate": 4e-4,
    })  # fmt: skip
    config.annotate.update({"backend": "lexicon", "goal": "gold"})
    config.code_rewards.update({"steps": 4_000, "pairs": 40, "proposals": 3, "revisions": 1} | values)
    return config


def run(config, workdir):
    experiment.run(config.to_dict(), workdir, ["write_reward"])
    return workdir / "write_reward", read_json(workdir / "write_reward/record.json")


@pytest.fixture
def model():
    """Starts a server that gives these replies in turn, and then the last one again and again."""
    with contextlib.ExitStack() as stack:

        def start(*replies):
            server = stack.enter_context(ChatServer())
            server.complete = lambda body: {
                "choices": [{"message": {"content": replies[min(len(server.asked), len(replies)) - 1]}}]
            }
            return server

        yield start


def with_model(server, **values):
    config = config_of(writer="server", **values)
    config.annotate.server.url = server.url
    config.annotate.model = "mine"
    return config


def training(workdir):
    """A config that trains with the program in a workdir, and what is given to make its source."""
    config = config_of()
    config.policy.sources = "code:write_reward"
    return config, Setting(viewed(config), workdir, make_world(config.env.to_dict()).specs)


@pytest.mark.journey
def test_a_program_is_written_that_the_judge_agrees_with_and_that_pays_an_agent(tmp_path):
    folder, record = run(config_of(steps=8_000, pairs=80), tmp_path)
    assert record["agreement_on_others"] > 0.75
    assert record["pairs"] == [40, 40]
    assert len(record["rounds"]) == 2
    assert "gold" in record["best"]["program"]
    for number, rows in enumerate(record["rounds"]):
        for proposal, row in enumerate(rows):
            assert (folder / f"round-{number}/program-{proposal}.reward").read_text() == row["program"]
    assert max(row["agreement"] for rows in record["rounds"] for row in rows) == record["best"]["agreement"]
    config, setting = training(tmp_path)
    check_stage(train_policy, config)
    assert make_sources(setting).facts()["code_written"]["facts"]["program"] == (folder / "best.reward").read_text()
    with pytest.raises(UserError, match=r"run the stage write_reward in this workdir before training .*--stage="):
        make_sources(setting._replace(workdir=tmp_path / "other"))
    before = (folder / "best.reward").stat().st_mtime_ns
    experiment.run(config_of(steps=8_000, pairs=80).to_dict(), tmp_path, ["write_reward"])
    assert (folder / "best.reward").stat().st_mtime_ns == before  # the stage is complete


def test_nothing_is_begun_when_the_minutes_are_over(tmp_path, capsys):
    folder, record = run(config_of(minutes=1e-6, train_for_env_steps=1_000), tmp_path)
    assert [len(rows) for rows in record["rounds"]] == [1]
    assert not (folder / "round-0/training-0").exists()
    assert record["best"]["program"] == record["rounds"][0][0]["program"]
    assert capsys.readouterr().out.count("minutes are over: the best so far counts (--config.code_rewards.min") == 1


@pytest.mark.parametrize("programs", [["3", "gained(gold) > 90"], ["0 - gained(gold)", "still() - still()"]], ids=str)
def test_a_constant_or_a_program_worse_than_a_coin_is_never_the_best(tmp_path, model, capsys, programs):
    folder, found = run(with_model(model(*programs), proposals=2, revisions=0, steps=8_000), tmp_path)
    assert not found["found"]
    assert not (folder / "best.reward").exists()
    assert "no reward was found: each program pays the same in every step, or agrees" in capsys.readouterr().out
    assert "No reward was found" in drawn(job.blocks_of(found))
    with pytest.raises(UserError, match=r"if it found no reward, write again in another --workdir, .*\.writer"):
        make_sources(training(tmp_path)[1])
    again = with_model(model(PROSE), proposals=2, revisions=0, steps=8_000)
    experiment.run(again.to_dict(), tmp_path, ["write_reward"])  # the stage is complete


@pytest.mark.parametrize("takes", ["vllm", "llama.cpp", "plain"])
def test_a_server_gets_the_grammar_in_its_own_way(tmp_path, model, takes):
    server = model("gained(gold)")
    run(with_model(server, proposals=1, revisions=1, grammar=takes, steps=1_000), tmp_path)
    body = server.asked[-1]
    found = {"vllm": body.get("structured_outputs", {}).get("grammar"), "llama.cpp": body.get("grammar")}
    assert {name for name, grammar in found.items() if grammar} == {takes} - {"plain"}
    if grammar := found.get(takes):
        assert "root ::= " in grammar
        assert '"gold"' in grammar
    assert ("```" in json.dumps(body["messages"])) == (takes == "plain")


def test_a_server_is_asked_like_a_judge_and_told_a_goal_in_own_words(tmp_path, model):
    server, goal = model("gained(gold)"), "The player's goal is to befriend as many animals as possible."
    config = with_model(server, proposals=1, revisions=0)
    config.annotate.update({"backend": "server", "model": "", "goal": goal})
    config.annotate.server.extra = '{"seed": null, "reasoning_effort": "low"}'
    check_stage(stage, config)
    job.write(stage.STAGE.view(config.to_dict()), tmp_path, lambda _: LongerAnnotator())
    (body,) = server.asked
    assert (body["model"], body["reasoning_effort"], "seed" in body) == ("judge", "low", False)
    assert f"The goal: {goal}\n" in body["messages"][-1]["content"]


def test_a_judge_that_rates_single_messages_is_refused(tmp_path):
    config = config_of()
    config.annotate.update({"backend": "model", "model": "smollm2", "mode": "rate"})
    refusal(lambda: check_stage(stage, config), "mode rate shows it single messages: choose reason or score (--c")


def with_random_model(path, letters="".join(map(chr, range(32, 127))), **values):
    """A config whose writer is a model in this process that spells with these letters."""
    tokeniser = LetterTokeniser.from_texts([*letters])
    sizes = make_config("llama", tokeniser.size, 16, 1, 2)._replace(max_positions=8_192, ends=(tokeniser.end_id,))
    path.mkdir()
    write_tokeniser(path, tokeniser)
    write_language_model(path, make_language_model(sizes))
    config = config_of(writer="model", **values)
    config.annotate.model = str(path)
    return config


@pytest.mark.quick
def test_captions_that_a_model_cannot_spell_are_not_quoted(tmp_path):
    letters = "".join(map(chr, range(32, 127))).replace("Q", "")
    pytest.importorskip("llguidance", reason="needs llguidance: pip install motif_jax[language]")
    guide = GuidedWriter(viewed(with_random_model(tmp_path / "model", letters), "write_reward"), READABLE).guide
    guide.begin(["You see a Queen.", "You see a door."])
    assert guide.phrases == [
        "You", "You see", "You see a", "You see a door.", "a", "a door.", "door.", "see", "see a", "see a door.",
    ]  # fmt: skip


@pytest.mark.quick
def test_a_missing_library_is_told_before_anything_starts(tmp_path, monkeypatch):
    config, find = with_random_model(tmp_path / "model"), importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "llguidance" else find(name))
    told = "writer=model needs the library llguidance: pip install 'motif_jax[language]' (--config.code_rewards.writer)"
    refusal(lambda: check_stage(stage, config), told)


@pytest.mark.journey
def test_a_random_model_in_this_process_writes_programs_alone(tmp_path):
    pytest.importorskip("llguidance", reason="needs llguidance: pip install motif_jax[language]")
    config = with_random_model(tmp_path / "model", proposals=3, steps=2_000)
    _, found = run(config, tmp_path / "run")
    rows = [row for rows in found["rounds"] for row in rows]
    assert len(rows) == 6
    assert len({row["program"] for row in rows}) > 3  # short ones may be equal
    assert not any(row["error"] for row in rows)
    assert all(check(row["program"], READABLE).root.of != "constant" for row in rows)
    assert run(config, tmp_path / "again")[1]["rounds"] == found["rounds"]


@pytest.mark.quick
def test_a_program_that_came_to_no_end_is_asked_for_again(tmp_path, monkeypatch):
    pytest.importorskip("llguidance", reason="needs llguidance: pip install motif_jax[language]")
    config = viewed(with_random_model(tmp_path / "model", proposals=3), "write_reward")
    writer, attempts = GuidedWriter(config, READABLE), []
    write, brief = writer.write, Brief("gold", "", READABLE, {}, [], texts=["You see gold"])

    def write_little_first(brief, earlier, attempt):
        attempts.append(attempt)
        monkeypatch.setattr(writers, "MOST_TOKENS", 600 if attempt else 3)
        return write(brief, earlier, attempt)

    monkeypatch.setattr(writer, "write", write_little_first)
    written = [job.propose(writer, brief, [], number, 9, tmp_path / f"{number}") for number in range(3)]
    assert not any(error for _, error in written)
    assert 1 < len(attempts) < 9
    assert attempts == [*range(len(attempts))]  # those of a round are written together


@pytest.mark.parametrize("level", ["DoorKey8", "KeyCorridor"])
def test_the_fast_view_of_the_study_is_that_of_minigrid(monkeypatch, level):
    monkeypatch.syspath_prepend(ROOT)
    world = getattr(importlib.import_module("examples.code_rewards.worlds"), level)()
    env, chances = world.make().unwrapped, np.random.default_rng(0)
    for episode in range(3):
        env.reset(seed=episode)
        for _ in range(200):
            observation = env.step(chances.choice(7, p=(0.15, 0.15, 0.3, 0.15, 0.05, 0.2, 0)))[0]
            slow = type(env).gen_obs(env)
            np.testing.assert_array_equal(observation.pop("image"), slow.pop("image"), strict=True)
            assert observation == slow


def test_a_model_is_told_of_ranges_steps_and_examples_of_its_world():
    recorded = job.record_episodes(config_of(steps=2_000), READABLE)
    brief = Brief("find gold", "a game", READABLE, {"You see gold": 3}, ["You see gold"], (),
                  recorded.ranges(READABLE), recorded.moments(READABLE))  # fmt: skip
    assert len(brief.moments) == 3
    assert any("gold +" in moment for moment in brief.moments)
    said = talk(brief, [Attempt("gained(gold)", "- it pays little")])
    assert [one["role"] for one in said] == ["system", *["user", "assistant"] * 4, "user"]
    assert "gold (0 to " in said[0]["content"]
    for _, program in examples(brief):
        check(program, READABLE)


@pytest.mark.quick
def test_a_model_is_shown_of_a_long_caption_what_it_may_quote():
    long = "You see a door. " + "It is a long way to the door, " * 4
    brief = Brief("find gold", "a game", READABLE, {long: 3}, [long], (), {}, [])
    shown = longest_phrase(long)
    assert 80 < len(shown) <= 100
    assert shown in long
    assert f'\n"{shown}"\n' in talk(brief, [])[0]["content"]
    assert f'once(says("{shown}"))' in examples(brief)[-1][1]


def test_a_model_that_writes_something_else_is_asked_again_with_the_error(tmp_path, model):
    server = model(PROSE, f"Sorry.\n```\ngained(gold)\n```\n{PROSE}")
    _, record = run(with_model(server, proposals=1, revisions=0, steps=1_000), tmp_path)
    assert record["best"]["program"] == "gained(gold)"
    assert len(server.asked) == 2
    assert "it cannot be read: line " in server.asked[1]["messages"][-1]["content"]


def test_a_model_that_never_writes_a_program_is_given_up(tmp_path, model):
    server = model(PROSE)
    with pytest.raises(UserError, match=r"none of 2 programs could be read after 3 attempts each; .* line 1"):
        run(with_model(server, proposals=2, steps=1_000), tmp_path)
    assert len(server.asked) == 6
    assert not (tmp_path / "write_reward/best.reward").exists()


def with_trainings(server, **values):
    config = with_model(server, train_for_env_steps=128, **values)
    config.policy.update(TINY | {"network": "general", "groups": 1})
    return config


def test_the_results_of_a_short_training_reach_the_writer_also_after_a_kill(tmp_path, monkeypatch, model):
    server = model("gained(gold)", "gained(gold) + stairs")
    config = with_trainings(server, proposals=1, revisions=2, steps=2_000)
    config.evaluate.update({"num_workers": 0, "games_per_worker": 8})
    with monkeypatch.context() as patched:
        patched.setattr(play.Evaluation, "play", lambda *_: interrupt())
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path)
    trained = tmp_path / "write_reward/round-0/training-0"
    before = {file: file.stat().st_mtime_ns for file in (trained / "policy").rglob("*") if "checkpoint" in str(file)}
    assert before
    folder, record = run(config, tmp_path)
    assert before == {file: file.stat().st_mtime_ns for file in before}  # it was not trained again
    assert len(server.asked) == 3
    prompts = [request["messages"][-1]["content"] for request in server.asked]
    assert "an agent that learnt from it for 128 steps, per episode (random play):\n    " in prompts[1]
    assert "\n    return: " in prompts[1]
    rows = [rows[0] for rows in record["rounds"]]
    assert len(rows[0]["trained"]["return"]) == 2
    assert [row["program"] for row in rows[:2]] == ["gained(gold)", "gained(gold) + stairs"]
    assert not (folder / "round-2/training-0").exists()  # the program is that of round 1
    alone = job.record_episodes(viewed(config, "write_reward"), READABLE)
    more = READABLE, [trained], len(alone.captions)
    played = [job.record_episodes(viewed(config, "write_reward"), *more) for _ in range(2)]
    assert played[0].captions == played[1].captions != alone.captions
    both, program = alone.with_others(played[0]), check("record(gold) + once(stairs > 0)", READABLE)
    returns = [one.returns(one.pay(program)) for one in (alone, played[0], both)]
    np.testing.assert_array_equal(returns[2], np.concatenate(returns[:2]))
    assert record["episodes"] > len(both.captions)  # the second round has an agent, too
    assert sorted(file.name for file in folder.glob("answers*")) == ["answers-1.json", "answers-2.json", "answers.json"]


@pytest.mark.parametrize(("worth", "best"), [(5.0, "gained(gold) + stairs"), (1.0, "gained(gold)")])
def test_the_program_whose_agent_plays_best_is_chosen_or_the_judge_decides(tmp_path, monkeypatch, model, worth, best):
    trained = []

    def train(config, program, workdir):
        trained.append((f"{workdir.parent.name}/{workdir.name}", program.text))
        figure = worth if program.text == "gained(gold) + stairs" else 1.0
        return {"return": [figure, 0.0]}, (0.0, figure)

    monkeypatch.setattr(job, "train", train)
    monkeypatch.setattr(job.Loop, "see_agents", lambda *_: None)
    server = model(
        "gained(gold) + stairs", "gained(gold)", "gained(gold) + 0", "2 * gained(gold)",
        "3 * gained(gold)", "gained(gold) + stairs", "gained(gold)", "0 + gained(gold)",
    )  # fmt: skip
    config = with_trainings(server, proposals=4, trainings=2, chosen_by="success,return", steps=8_000)
    _, record = run(config, tmp_path)
    assert trained == [
        ("round-0/training-0", "gained(gold)"),
        ("round-0/training-1", "gained(gold) + stairs"),  # not the one that pays at the same steps
        ("round-1/training-0", "3 * gained(gold)"),  # the only one that is new
    ]
    assert record["best"]["program"] == best
    assert [["trained" in row for row in rows] for rows in record["rounds"]] == [[True, True, True, False], [True] * 4]


def test_the_best_is_chosen_anew_when_the_judge_has_seen_agents(tmp_path, monkeypatch, model):
    def train(config, program, workdir):
        return {"return": [1.0, 0.0]}, (float(program.text == "gained(gold)"),)

    def see_agents(loop, agents, file):
        assert len(agents) == 2
        choosing = loop.evidence.choosing
        loop.evidence = replace(loop.evidence, choosing=choosing._replace(judged=1 - choosing.judged))

    monkeypatch.setattr(job, "train", train)
    monkeypatch.setattr(job.Loop, "see_agents", see_agents)
    server = model("gained(gold)", "once(steps_left < 40)", "gained(gold)")  # the second has equal returns: a coin
    _, record = run(with_trainings(server, proposals=2, trainings=2, steps=8_000), tmp_path)
    assert record["best"]["program"] == "once(steps_left < 40)"
    assert server.asked[-1]["messages"][-2]["content"].count("once(steps_left < 40)") == 1
    assert record["found"]


def test_a_training_of_another_program_is_not_gone_on_with(tmp_path, monkeypatch):
    config, begun = viewed(config_of(), "write_reward"), tmp_path / "training-0/policy"
    monkeypatch.setattr(job, "stages_of", lambda config: [])
    for text, goes_on in [("gained(gold)", False), ("gained(gold)", True), ("record(gold)", False)]:
        with pytest.raises(KeyError, match="agent"):  # no stage has played
            job.train(config, check(text, READABLE), tmp_path / "training-0")
        assert begun.exists() == goes_on
        begun.mkdir(exist_ok=True)


def test_short_trainings_are_evaluated_in_the_games_of_the_config_alone():
    config = config_of(train_for_env_steps=128)
    config.evaluate.controls, config.policy.train_until = "grounding", "success>=0.95"
    (_, trained), (_, view) = stages_of(viewed(config, "write_reward"))
    assert view.evaluate.controls == view.evaluate.variations == trained.policy.train_until == ""


def test_agents_with_actions_of_several_parts_are_recorded(tmp_path):
    config = get_config("quickstart.py", "toy")
    config.env.world, config.env.max_episode_steps = "own_gym:AimWorld", 50
    config.policy.update(TINY | {"network": "general", "intrinsic_coefficient": 0.0, "extrinsic_coefficient": 1.0})
    config.code_rewards.steps = 200
    run_stage(train_policy, config, tmp_path)
    readable = find_readable(make_world(config.env.to_dict()))
    assert job.record_episodes(viewed(config, "write_reward"), readable, [tmp_path]).captions


TRAINED = {"code_rewards.train_for_env_steps": 128}


@pytest.mark.quick
@pytest.mark.parametrize(("values", "said"), [
    ({"code_rewards.writer": "server", "annotate.server.url": "localhost:8000"}, "is not an address"),
    ({"annotate.backend": "score"}, "a judge of captions is asked"),
    (TRAINED | {"code_rewards.chosen_by": "return, "}, "no figure '': choose from return, "),
])  # fmt: skip
def test_values_that_cannot_work_are_refused_in_one_sentence(values, said, tmp_path):
    config = config_of()
    config.update_from_flattened_dict(values)
    refusal(lambda: experiment.check(config.to_dict(), ["write_reward"], tmp_path), said, "--config.")


def test_a_number_sign_in_quotes_begins_no_comment():
    earlier = [Attempt('once(says("door #2 opens"))  # a door', "")]
    text = ScriptedWriter().propose(Brief("gold", "", READABLE, {}, []), earlier, 0)
    check(text, READABLE)
    assert text.startswith('once(says("door #2 opens")) ')


def test_the_order_of_liked_captions_is_that_of_the_games():
    captions = [["b", "a", "c", "b"], ["d"]]
    assert job.liked_captions(captions, job.Pairs(np.array([[0, 1]]), np.array([0.0]))) == ["b", "a", "c"]


@pytest.fixture(scope="module")
def tried():
    """Tries a program on random play of treasure, where the judge counts gold."""
    recorded = job.record_episodes(config_of(steps=8_000), READABLE)
    pairs = recorded.choose_pairs(40, 0)
    gold = np.array([sum("gold" in caption for caption in captions) for captions in recorded.captions])
    first, second = gold[pairs].T
    judged = job.Pairs(pairs, np.where(first == second, 0.5, second > first))
    texts = ["\n".join(captions) for captions in recorded.captions]
    brief = Brief("gold", "", READABLE, {}, job.liked_captions(recorded.captions, judged))
    evidence = job.Evidence(recorded, texts, READABLE, judged, judged, brief, None)

    def run(program):
        results = evidence.examine(check(program, READABLE))
        return results, "\n".join(evidence.describe(results))

    return run


SAYS_GOLD = 'once(says("You pick up a gold piece."))'


@pytest.mark.parametrize(("program", "agreement", "said"), [
    ("gained(gold)", 1.0, None),
    ("0 - gained(gold)", 0.0, "the judge prefers this episode, which it pays -"),
    ("3", None, "paid the same everywhere: it pays the same in every step (3), also at '"),
    ("0 - 3", None, "paid the same everywhere: it pays the same in every step (-3), also at '"),
    ("gained(gold) > 9", 0.5, "never paid: it pays the same in every step (0)"),
    ("still()", None, "paid for standing still: 100% of its pay is for steps that change nothing"),
    ("200 * gained(gold)", 1.0, "out of scale: its largest reward is 200 (at '"),
    ("1 + gained(gold)", None, "longer episodes are paid more"),
    ("0.0001 * gained(gold)", 1.0, "times as much as the game's own reward"),
    ("says(\"wall\")", None, "captions that the episode has shown more than 5 times before"),
    ("stairs * 0 + once(says(\"stairs\"))", None, f"pays nothing at 1 caption of better episodes: add + {SAYS_GOLD}"),
    ("0 - once(says(\"gold\"))", None, f"away at a caption of better episodes: write + {SAYS_GOLD} in place of -"),
], ids=str)  # fmt: skip
def test_defects_of_a_program_are_found(tried, program, agreement, said):
    results, words = tried(program)
    if agreement is not None:
        assert results.figures["agreement"] == agreement
    if said is not None:
        assert said in words
    elif agreement == 1.0:
        assert results.findings == []


@pytest.mark.parametrize("feedback", ["diagnoses", "metrics"])
def test_a_writer_is_told_of_findings_or_of_figures_alone(tmp_path, model, feedback):
    server = model("200 * gained(gold)")
    run(with_model(server, proposals=1, revisions=1, feedback=feedback, steps=1_000), tmp_path)
    said = server.asked[-1]["messages"][-1]["content"]
    assert ("out of scale: its largest reward is 200" in said) == (feedback == "diagnoses")
    assert ("- deviation of returns: " in said) == (feedback == "metrics")


@pytest.mark.quick
@pytest.mark.parametrize(("learnt", "said"), [
    ([3, 2, 1, 0], "the other episode in 100% of the pairs, and agrees with the judge about 100% of them"),
    ([0, 1, 2, 3], ""), ([0, 0, 0, 0], ""),
])  # fmt: skip
def test_disagreement_is_a_finding_if_the_judge_sides_with_the_learnt_reward(learnt, said):
    pairs = job.Pairs(np.array([[0, 1], [2, 3], [0, 3]]), np.zeros(3))  # the first is always better
    figures, finding = job.compare_with_learnt(np.arange(4.0), np.array(learnt, float), pairs, 0.0)
    assert said in finding
    assert bool(said) == bool(finding)
    if said:
        assert figures["learnt_correlation"] == pytest.approx(-1)
    assert np.isnan(figures["learnt_disagrees"]) == (learnt == [0, 0, 0, 0])
