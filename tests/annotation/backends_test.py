"""Backends: what their answers depend on keeps caches, shards and online rewards of two judges apart."""

import json
import sys

import numpy as np
import pytest
from conftest import check_stage, get_config, is_complete, refusal, viewed
from nethack_texts import NETHACK
from small_dataset import random_pairs, write_dataset

from motif_jax.annotation.annotator import AnswerCache, QuestionAnswer
from motif_jax.annotation.backends import BACKENDS, CaptionBackend, Oracle, find_backend
from motif_jax.config.table import tables_of
from motif_jax.envs.texts import texts_of
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards.online.source import judge_facts
from motif_jax.stages import annotate
from motif_jax.stages.annotate import AnnotateConfig, make_backend, make_metadata
from motif_jax.structs import UserCodeError, UserError

pytestmark = pytest.mark.quick
OWN = f"{__name__}:Longer"
# Values of the section that decide labels, but not answers; the others decide answers.
LABELLING = {"backend", "captions", "both_orders", "tie_margin", "custom_name", "num_shards"}


class Longer(CaptionBackend):
    """A judge as a stranger writes it: the longer caption is better, by a power of the lengths."""

    is_model, weights = True, ""

    def metadata(self):
        return {"exponent": self.section.sampling.temperature}

    def check(self):
        if not self.section.sampling.temperature:
            raise UserError("the exponent cannot be 0 (--config.annotate.sampling.temperature)")

    def open(self):
        return LongerAnnotator()


class LongerAnnotator:
    model = "longer"

    def answers(self, questions):
        for question in filter(None, questions):
            yield question, QuestionAnswer(float(len(question.second or "") > len(question.first)))

    def close(self):
        pass


class Faulty(CaptionBackend):
    """`annotate.model` names what goes wrong where: the value that a method gives, or `exit`."""

    model = "faulty"
    is_model, weights = True, ""

    def do(self, method, right):
        where, _, wrong = self.section.model.partition(" ")
        if where == method and wrong == "exit":
            sys.exit(0)
        return eval(wrong, {"np": np}) if where == method else right

    def metadata(self):
        return self.do("metadata", {"pair": (1, 2)})

    def check(self):
        self.do("check", None)

    def open(self):
        return self.do("open", self)

    def answers(self, questions):
        for question in filter(None, questions):
            yield question, QuestionAnswer(self.do("yes", np.float32(0.5)), mass=self.do("mass", 1.0))
            self.do("answers", None)

    def close(self):
        self.do("close", None)


class Margin(Faulty):
    tie_margin = "wide"


class Unfinished(CaptionBackend):
    """Has no methods."""


@pytest.mark.parametrize(("backend", "fault", "said"), [
    *((":Faulty", f"{method} exit", ":Faulty' failed with SystemExit: 0 (--config.annotate.backend)")
      for method in ("metadata", "check", "open", "answers", "close")),
    *((":Faulty", f"yes {yes}", f":Faulty' answered with yes = {yes}, not None or from 0 to 1 (--config.ann")
      for yes in ("2.0", "-1", "'yes'")),
    (":Faulty", "yes np.nan", "answered with yes = nan, not None or from 0 to 1"),
    (":Faulty", "yes np.ones(1)", "answered with yes = array([1.]), not None or from 0 to 1"),
    (":Faulty", "mass 7.0", "answered with a field of the wrong type or range"),
    (":Faulty", "metadata {'x': np.nan}", "must be a dictionary of finite JSON values, not {'x': nan}: "),
    (":Faulty", "metadata 3", "must be a dictionary of finite JSON values, not 3: it is not a dictionary (--con"),
    (":Faulty", "metadata {'x': np.ones(1)}", "Object of type ndarray is not JSON serializable"),
    (":Faulty", "open None", "`open` of the judge 'backends_test:Faulty' must return an object with the text `model`"),
    (":Margin", "", "tie_margin of the judge 'backends_test:Margin' must be a number from 0 to 0.5, not 'wide' (--con"),
    (":Unfinished", "", ":Unfinished' does not define is_model: Whether it is a language model: its answers"),
    (":Unfinished", "", "; metadata: All values that its answers depend on, as JSON; "),
    (":Unfinished", "", "; open: Opens it. Raises UserError if it does not work; weights: A hash of a model's files, "),
    (":LongerAnnotator", "", ":LongerAnnotator' must be a subclass of CaptionBackend (--config.annotate.backend)"),
    (":config_of", "", ":config_of' must be a subclass of CaptionBackend (--config.annotate.backend)"),
])  # fmt: skip
def test_what_a_judge_of_a_stranger_does_wrong_is_told_in_one_sentence(backend, fault, said, dataset, tmp_path):
    config = config_of(backend=f"backends_test{backend}", model=fault, cache_dir="")

    def run():
        check_stage(annotate, config)
        annotate.run(annotate.STAGE.view(config.to_dict()), tmp_path)

    by_its_code = "failed with" in said or "answered with" in said  # what it did is shown below the sentence
    refusal(run, said, kind=UserCodeError if by_its_code else UserError)
    config.annotate.update(backend="backends_test:Faulty", model="")
    run()
    assert is_complete(annotate, config, tmp_path)  # a tuple in metadata, numbers of NumPy


def config_of(**values):
    return get_config(**{f"annotate.{name}": value for name, value in values.items()})


def folder_of(backend, tmp_path, model=""):
    """`model`: the full name, as the opened model has it."""
    rules = backend.metadata().get("rules")
    model = model or (f"lexicon-{rules}" if rules else backend.section.model)
    return AnswerCache(backend.cache_metadata(model), tmp_path).folder.name


@pytest.fixture
def dataset(tmp_path):
    write_dataset(tmp_path / "dataset", random_pairs(60))
    return PairDataset(tmp_path / "dataset")


def test_two_judges_of_a_stranger_with_other_metadata_never_share_a_cache_or_a_shard(dataset, tmp_path):
    answers = str(tmp_path / "answers")
    one, other = (config_of(backend=OWN, sampling__temperature=value, custom_name="x") for value in (1.0, 2.0))
    for config in (one, other):
        config.annotate.cache_dir = answers
    annotate.run(annotate.STAGE.view(one.to_dict()), tmp_path)
    refusal(lambda: annotate.run(annotate.STAGE.view(other.to_dict()), tmp_path), "'x' has exponent = 1.0, not 2.0: ")
    other.annotate.custom_name = "y"
    annotate.run(annotate.STAGE.view(other.to_dict()), tmp_path)
    assert len(list((tmp_path / "answers").iterdir())) == 2
    (log,) = json.loads((tmp_path / "annotations/y/merged.json").read_text())["shards"].values()
    assert (log["from_cache"], log["no_verdict"]) == (0, 0)
    assert log["asked"] > 0
    facts = [judge_facts(viewed(config), texts_of(config.env, "")) for config in (one, other)]
    assert facts[0] != facts[1]


def test_a_judge_of_a_stranger_is_checked_and_named(tmp_path):
    assert annotate.label_name(config_of(backend=OWN).annotate) == "backends-test-longer_msg_defaultgoal"
    refusal(lambda: check_stage(annotate, config_of(backend=OWN, sampling__temperature=0.0)), "exponent cannot be 0")
    for name, said in (("json:Nobody", "has no class 'Nobody'"), ("no_such_module:Judge", "No module named")):
        refusal(lambda: check_stage(annotate, config_of(backend=name)), match=said)


@pytest.mark.parametrize("mode", ["reason", "score"])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in ("score", "return", "random")])
def test_every_value_that_decides_answers_changes_cache_and_facts(backend, mode, tmp_path):
    """A value that is declared with `decides=True` and forgotten in `metadata` fails here."""
    (tmp_path / "own.toml").write_text(NETHACK.prompt("default").read_text().replace("1", "1 "))
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "x"\npattern = "x"\nworth = { progress = 1 }\n')
    changed = {
        "model": "other", "mode": "score" if mode == "reason" else "reason", "goal": "gold", "prompt": "reworded",
        "prompt_file": str(tmp_path / "own.toml"), "lexicon": str(tmp_path / "rules.toml"), "samples": 3,
        "rules_temperature": 3.0, "system_role": False, "chat_format": "llama3", "sampling.temperature": 0.7,
        "sampling.top_p": 0.5, "sampling.top_k": 7, "sampling.max_tokens": 77, "vllm.dtype": "half",
        "vllm.quantization": "fp8", "vllm.extra": '{"a": 1}', "server.extra": '{"a": 1}', "server.prefill": True,
    }  # fmt: skip
    deciding = {name for name, value in tables_of(AnnotateConfig)["annotate"].items() if value.decides} - LABELLING
    assert changed.keys() == deciding
    given = {"backend": backend, "mode": mode, "model": "m"}
    section = viewed(config_of(**given), "annotate").annotate
    before = find_backend(section)(section, NETHACK, 5)
    for name, value in changed.items():
        values = given | {name.replace(".", "__"): value}
        config = viewed(config_of(**values), "annotate")
        texts = NETHACK._replace(lexicon=config.annotate.lexicon)
        after = find_backend(config.annotate)(config.annotate, texts, 5)
        section = name.partition(".")[0]
        without_effect = {
            "vllm": backend != "vllm", "server": backend not in ("server", "judge"), "lexicon": not before.by_rules,
            "sampling": mode == "score", "rules_temperature": True, "chat_format": backend != "model",
        }.get(section, False)  # fmt: skip
        if backend == "lexicon":
            without_effect = name not in {"goal", "lexicon", "rules_temperature"}
        facts = [made.flat_metadata() | {"goal": made.section.goal} for made in (before, after)]
        assert (facts[0] != facts[1]) == (not without_effect), name
        if before.is_model and (backend, name) != ("judge", "model"):  # that has no effect on its answers
            folders = [folder_of(made, tmp_path / "cache") for made in (before, after)]
            assert (folders[0] != folders[1]) == (not without_effect), name


def test_answers_for_another_goal_or_of_replaced_weights_are_not_taken_for_ones_own(tmp_path, monkeypatch):
    own = [make_backend(viewed(config_of(backend=OWN, goal=goal), "annotate")) for goal in ("gold", "stairs")]
    assert len(folders := {folder_of(one, tmp_path) for one in own}) == 2
    monkeypatch.setattr(Longer, "weights", "of its files")
    assert folder_of(own[0], tmp_path) not in folders
    file, facts = tmp_path / "judge.gguf", []
    config = config_of(backend="model", model=str(file))
    for weights in (b"one", b"two"):
        file.write_bytes(weights)
        facts.append(judge_facts(viewed(config), texts_of(config.env, "")))
    assert facts[0]["model"] == facts[1]["model"]
    assert facts[0] != facts[1]


# What version 0.1 wrote: backend and values, its facts in shards.
SAMPLING = {"sampling.max_tokens": 1024, "sampling.temperature": 0.1, "sampling.top_k": 50, "sampling.top_p": 0.95}
REASON = SAMPLING | {"mode": "reason", "prompt": "521152515cca8809", "tie_margin": 0.1, "both_orders": 0.05}
REASON["model"] = ""
SERVER = {"server.extra": "{}", "server.prefill": False}
EARLIER = [
    ({"backend": "server", "samples": 3, "server__extra": '{"seed": 1}', "goal": "gold", "prompt": "reworded"},
     REASON | SERVER | {"samples": 3, "server.extra": '{"seed": 1}', "prompt": "b0a556966128961a"}),
    ({"backend": "vllm", "model": "org/name", "vllm__dtype": "half"},
     REASON | {"model": "org/name", "vllm.dtype": "half", "vllm.extra": "{}", "vllm.quantization": ""}),
    ({"backend": "lexicon", "goal": "combat", "rules_temperature": 2.0},
     {"rules": "213f53e9319d496f", "rules_temperature": 2.0}),
    ({"backend": "server", "captions": "msg_minbl", "both_orders": 1.0, "tie_margin": 0.0},
     REASON | SERVER | {"both_orders": 1.0, "tie_margin": 0.0, "captions": "msg_minbl", "bottom_line_version": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("values", "facts"), EARLIER)
def test_annotations_of_version_0_1_go_on(values, facts, dataset):
    backend = make_backend(viewed(config_of(**values), "annotate"))
    found = make_metadata(backend, dataset)
    assert found.pop("dataset")
    assert bool(found.pop("beside")) == (backend.section.captions == "msg_minbl")
    common = {"num_shards": 1, "backend": values["backend"], "captions": "msg"}
    assert found == common | {"goal": values.get("goal", "defaultgoal")} | facts


def oracle(name, seed=0):
    config = config_of(backend=name)
    made = find_backend(config.annotate)(config.annotate, NETHACK, seed)
    assert isinstance(made, Oracle)
    return made


def test_score_and_return(tmp_path):
    write_dataset(tmp_path / "dataset", [(["a", "b"], ["c", "d"])] * 3)
    np.save(tmp_path / "dataset/info/score.npy", np.array([[1, 2], [5, 5], [9, 3]]))
    rewards = np.array([[[1, 1], [0, 1]], [[2, 0], [0, 2]], [[0, 0], [0.5, 0]]], np.float32)  # [3, 2, 2]
    np.save(tmp_path / "dataset/data/rewards.npy", rewards)
    dataset = PairDataset(tmp_path / "dataset")
    assert oracle("score").answer(dataset, np.arange(3)).tolist() == [1.0, 0.5, 0.0]
    assert oracle("return").answer(dataset, np.arange(3)).tolist() == [0.0, 0.5, 1.0]  # 2 > 1, 2 = 2, 0 < 0.5
    assert oracle("score").answer(dataset, np.array([2])).tolist() == [0.0]


def test_chance_is_the_same_however_the_rows_are_shared(tmp_path):
    dataset = PairDataset(write_dataset(tmp_path / "dataset", random_pairs(1000)))
    whole = oracle("random", 7).answer(dataset, np.arange(1000))
    assert (oracle("random", 7).answer(dataset, np.arange(300, 400)) == whole[300:400]).all()
    assert (oracle("random", 8).answer(dataset, np.arange(1000)) != whole).any()
    assert 400 < whole.sum() < 600
    assert whole[:8].tolist() == np.random.default_rng(7).integers(2, size=1000)[:8].tolist()  # as in version 0.1
