import json
import signal
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from chat_server import ChatServer
from conftest import LONG_S, ROOT, check_stage, get_config, is_complete, run_stage, wait_for
from fake_slurm import FakeSlurm
from host_processes import finished
from nethack_texts import NETHACK
from small_dataset import EVENTS, MANY, random_pairs, write_dataset

from motif_jax.annotation.annotator import Incomplete, QuestionAnswer
from motif_jax.annotation.backends import Lexicon, Server, opened
from motif_jax.files import read_json, read_lines
from motif_jax.pages.blocks import drawn
from motif_jax.preferences.questions import Questions, captions_to_ask
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.run import Run
from motif_jax.stages import annotate
from motif_jax.structs import Interrupted, UserError

pytestmark = pytest.mark.usefixtures("short_pauses")

STAGE = ("--config=configs/motif.py", "--stage=annotate")
QUESTIONS = {frozenset(pair) for pair in random_pairs(600, events=MANY) if pair[0] != pair[1]}


@pytest.fixture
def workdir(tmp_path):
    write_dataset(tmp_path / "dataset", random_pairs(600, events=MANY))
    return tmp_path


def run(workdir, **values):
    own = {"cache_dir": str(workdir / "answers"), "server__in_flight": 8}
    own |= {"server__patience_s": LONG_S, "server__start_s": LONG_S}
    config = get_config(**{f"annotate.{name}": value for name, value in (own | values).items()})
    check_stage(annotate, config)
    if not is_complete(annotate, config, workdir):
        run_stage(annotate, config, workdir)
    return annotate.label_name(config.annotate)


def run_server(workdir, chat, **values):
    return run(workdir, **{"backend": "server", "server__url": chat.url, "both_orders": 0.0} | values)


def expected(workdir, goal: str = "defaultgoal") -> list[int]:
    dataset, lexicon = PairDataset(workdir / "dataset"), Lexicon(NETHACK, goal)
    table, ids = dataset.captions()
    pairs = [(table.text(first), table.text(second)) for first, second in ids[:, :, 0]]
    worth = [(lexicon.worth(first)[0], lexicon.worth(second)[0]) for first, second in pairs]
    return [2 if first == second else int(second > first) for first, second in worth]


def labels(workdir, name: str) -> list[int]:
    return PairDataset(workdir / "dataset").preference(name).tolist()


def log_of(workdir, name: str) -> dict:
    shards = json.loads((workdir / "annotations" / name / "merged.json").read_text())["shards"]
    return {key: sum(log[key] for log in shards.values()) for key in ("asked", "from_cache", "no_verdict")}


@pytest.mark.quick
def test_rules_give_probabilities_with_the_same_verdicts(workdir):
    name = run(workdir, rules_temperature=2.0, num_shards=2)
    run(workdir, rules_temperature=2.0, num_shards=2, shard=1)
    dataset, worth = PairDataset(workdir / "dataset"), NETHACK.rules().worth_to("defaultgoal")
    table, ids = dataset.captions()
    first, second = np.array([[worth(table.text(at))[0] for at in pair] for pair in ids[:, :, 0]]).T
    assert labels(workdir, name) == expected(workdir)
    prob = np.load(workdir / f"annotations/{name}/prob.npy")
    np.testing.assert_allclose(prob, 1 / (1 + np.exp((first - second) / 2)), atol=1e-6)
    assert Run(workdir).facts()["annotate", name].judge.names == ("the rules",)


@pytest.mark.journey
def test_a_server_is_asked_every_question_once_and_never_again(workdir):
    with ChatServer() as chat:
        name = run_server(workdir, chat)
        questions = len(chat.asked)
        assert labels(workdir, name) == expected(workdir)
        assert 300 < questions < 600
        assert log_of(workdir, name) == {"asked": questions, "from_cache": 0, "no_verdict": 0}
        (log,) = read_json(workdir / f"annotations/{name}/merged.json")["shards"].values()
        tokens = [log[f"{kind}_tokens"] / questions for kind in ("prompt", "cached", "output")]
        assert tokens == [300, 256, 20]  # as the server counts

        # Another dataset with the same captions: all from the cache. Shards, too.
        (workdir / "second").mkdir()
        write_dataset(workdir / "second/dataset", [pair[::-1] for pair in random_pairs(600, events=MANY)])
        for number in range(2):
            answers = str(workdir / "answers")
            name = run_server(workdir / "second", chat, num_shards=2, shard=number, cache_dir=answers)
        assert labels(workdir / "second", name) == expected(workdir / "second")
        assert len(chat.asked) == questions
        assert log_of(workdir / "second", name) == {"asked": 0, "from_cache": questions, "no_verdict": 0}

        run_server(workdir, chat, custom_name="other", goal="gold")  # another question: asked
        assert len(chat.asked) == 2 * questions


@pytest.mark.journey
@pytest.mark.parametrize("place", ["first", ""])
def test_a_judge_that_names_a_position_is_asked_in_both_orders_and_reported_as_chance(workdir, capsys, place):
    with ChatServer() as chat:
        honest = chat.complete

        def complete(body):
            reply = honest(body)
            if place:
                reply["choices"][0]["message"]["content"] = '("best_description": 1)'
            return reply

        chat.complete = complete
        name = run_server(workdir, chat, both_orders=0.05)
        printed = capsys.readouterr().out
        different = [first != second for first, second in random_pairs(600, events=MANY)]
        found, wanted = np.array(labels(workdir, name)), np.array(expected(workdir))
        assert (found == (np.where(different, 2, wanted) if place else wanted)).all()  # 1 in one order, 2 in the other
        assert ("100% of 128 pairs get the other caption in the reverse order" in printed) == bool(place)
        assert ("100% of the answers are ties" in printed) == bool(place)
        count = len(QUESTIONS)
        assert len(chat.asked) == 2 * count if place else count + 128 <= len(chat.asked) < 1.5 * count


@pytest.mark.journey
def test_scores_become_soft_labels(workdir):
    with ChatServer() as chat:
        name = run_server(workdir, chat, mode="score", both_orders=0.05)
        assert len(chat.asked) == 2 * len(QUESTIONS)
    codes, prob = np.array(labels(workdir, name)), np.load(workdir / "annotations" / name / "prob.npy")
    assert codes.tolist() == expected(workdir)
    # The server gives the verdict 0.80 and the others 0.10 and 0.06: see ChatServer.complete. Verdict 2 in one order is
    # verdict 1 in the other: ((0.80 + 0.03) / 0.96 + 1 - (0.10 + 0.03) / 0.96) / 2
    np.testing.assert_allclose(prob[codes == 1], (0.83 / 0.96 + 1 - 0.13 / 0.96) / 2, rtol=1e-5)
    np.testing.assert_allclose(prob[codes == 0], 1 - (0.83 / 0.96 + 1 - 0.13 / 0.96) / 2, rtol=1e-5)
    np.testing.assert_allclose(prob[codes == 2], 0.5, rtol=1e-6)
    assert "Certainty of the answers" in (workdir / "annotations" / f"{name}.html").read_text()


@pytest.mark.journey
def test_questions_without_a_verdict_are_asked_again_only_if_existing_labels_are_ignored(workdir):
    with ChatServer(lambda number, body: "mumble" if "#3" in str(body) else "") as chat:
        name = run_server(workdir, chat)
        first = np.array(labels(workdir, name))
        assert 100 < (first == 3).sum() < 500
        page = (workdir / "annotations" / f"{name}.html").read_text()
        assert "Answers without a verdict" in page
        assert "Hard to say." in page
        questions = log_of(workdir, name)["asked"]
        unread = log_of(workdir, name)["no_verdict"]
        assert unread > 0
        chat.fault = lambda number, body: ""
        chat.asked.clear()
        run_server(workdir, chat)
        assert not chat.asked
        assert labels(workdir, name) == first.tolist()
        run_server(workdir, chat, ignore_existing=True)
        assert len(chat.asked) == unread  # the cache answers the others
        assert labels(workdir, name) == expected(workdir)
        assert log_of(workdir, name) == {"asked": unread, "from_cache": questions - unread, "no_verdict": 0}


def test_a_trial_is_not_asked_again_about_questions_without_a_verdict(workdir):
    with ChatServer(lambda number, body: "mumble" if EVENTS[0] in str(body["messages"]) else "") as chat:
        for pairs, order, asks in ((100, "by_caption", True), (100, "by_caption", False), (100, "random", True)):
            chat.asked.clear()
            run_server(workdir, chat, max_pairs=pairs, order=order)
            assert bool(chat.asked) == asks


@pytest.mark.parametrize(("fault", "questions"), [("404", 1), ("mumble", 19), ("silence", 40)])
def test_a_job_with_hardly_any_answers_fails(tmp_path, fault, questions):
    write_dataset(tmp_path / "dataset", [(f"You kill the newt! #{number}", "") for number in range(questions)])
    answered = "#7" if questions == 40 else "nobody"
    with ChatServer(lambda number, body: "" if answered in str(body["messages"]) else fault) as chat:
        for _ in range(2):  # the same when it is repeated
            message = {"mumble": "Hard to say", "silence": r"asked again"}.get(fault, f"it answers {fault}")
            with pytest.raises(UserError, match=rf"{message}.*\(--config\.annotate\."):
                run_server(tmp_path, chat, server__patience_s=0.5)
            assert not list(tmp_path.rglob("merged.json"))
        chat.fault = lambda number, body: ""
        assert labels(tmp_path, run_server(tmp_path, chat)) == expected(tmp_path)


def test_answers_of_a_server_that_dies_are_kept_for_its_model(workdir, monkeypatch):
    def fault(number, body):
        return "503" if number >= 200 and wait_for(lambda: chat.verdicts == 200) else ""

    with ChatServer(fault, models=("alpha",)) as chat:
        with pytest.raises(UserError, match=r"\d+ of 600 pairs are labelled, and the same command goes on from there"):
            run_server(workdir, chat, server__patience_s=1.0)
        chat.fault, chat.models = lambda number, body: "", ("beta",)
        with pytest.raises(UserError, match=r"has opened = 'alpha', not 'beta': .*custom_name"):
            run_server(workdir, chat)
        with pytest.raises(UserError, match=r"has server.extra = '\{\}', not"):
            run_server(workdir, chat, server__extra='{"temperature": 2.0}')
        chat.models = ("alpha",)
        with monkeypatch.context() as patch:
            patch.setattr(Server, "weights", "of files that were replaced")
            with pytest.raises(UserError, match="has opened.weights = None, not 'of files that were repl"):
                run_server(workdir, chat)
        chat.asked.clear()
        name = run_server(workdir, chat)
        assert labels(workdir, name) == expected(workdir)
        assert len(chat.asked) + 200 == log_of(workdir, name)["asked"]


class Stops:
    def __init__(self, annotator, answers: int, error: Exception | None = None):
        self.annotator, self.left, self.model = annotator, answers, annotator.model
        self.error = error or Interrupted("stopped")

    def answers(self, questions):
        for answered in self.annotator.answers(questions):
            if not self.left:
                raise self.error
            self.left -= 1
            yield answered

    def close(self):
        self.annotator.close()


def order_of(folder) -> list[int]:
    """The questions in the order in which they were wanted."""
    (file,) = folder.glob("answers-*.jsonl")
    return [spot // 2 for line in read_lines(file) for spot in line.get("ask", ()) if not spot % 2]


def annotated_in_parts(tmp_path, stops, open_backend, **values):
    """Labels of a job that is interrupted after these numbers of answers are those of one that is not."""
    config, ends = get_config(annotate__order="disagreement"), []
    for workdir, numbers in ((tmp_path / "whole", ()), (tmp_path / "parts", stops)):
        write_dataset(workdir / "dataset", random_pairs(600, events=MANY))
        config.annotate.update(values | {"cache_dir": str(workdir / "kept")})
        view = annotate.STAGE.view(config.to_dict())
        for answers in numbers:
            with pytest.raises(Interrupted):
                annotate.STAGE.run(view, workdir, lambda backend, n=answers: Stops(open_backend(backend), n))
        annotate.STAGE.run(view, workdir, open_backend)
        folder = workdir / "annotations" / annotate.label_name(config.annotate)
        ends.append([order_of(folder), (folder / "prob.npy").read_bytes()])
    assert ends[0] == ends[1]
    return config, workdir, folder


class Alphabet:
    """Prefers the caption that is later in the alphabet, and is surer if it is the second."""

    model = "alphabet"

    def answers(self, questions):
        for question in filter(None, questions):
            yield question, QuestionAnswer(0.9 if question.second > question.first else 0.2)

    def close(self):
        pass


def test_interrupted_rounds_try_the_same_questions_in_both_orders(tmp_path, monkeypatch):
    monkeypatch.setattr(annotate.disagreement, "small_rewards", lambda messages, *_: np.eye(4, len(messages)))
    annotated_in_parts(tmp_path, (430,), lambda _: Alphabet(), rounds=2, backend="server")


def test_interrupted_rounds_by_disagreement_resume_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(annotate.disagreement, "MOST_STEPS", 4)
    config, workdir, folder = annotated_in_parts(tmp_path, (20, 70, 40), opened, rounds=3, max_pairs=200)
    order, prob = order_of(folder), np.load(folder / "prob.npy")
    questions = Questions(PairDataset(workdir / "dataset"), "msg")
    asked = np.unique(questions.of_pair[:200])
    assert len(order) == len(set(order)) == (asked >= 0).sum()  # as many as by_caption asks
    np.testing.assert_array_equal(~np.isnan(prob), np.isin(questions.of_pair, [-1, *order]))
    config.annotate.max_pairs = 0
    run_stage(annotate, config, workdir)
    assert order_of(folder)[: len(order)] == order
    assert labels(workdir, folder.name) == expected(workdir)


@pytest.mark.parametrize("values", [
    {"both_orders": 0.5}, {"mode": "score"}, {"mode": "rate"}, {"num_shards": 4}, {"max_pairs": 300, "order": "random"},
    {"order": "disagreement", "rounds": 2},
])  # fmt: skip
def test_interrupted_without_a_cache_it_ends_with_the_same_bits(tmp_path, monkeypatch, values):
    """Some questions have no verdict, others turn with the order, and moments without a message are rare."""
    monkeypatch.setattr(annotate.disagreement, "small_rewards", lambda messages, *_: np.eye(4, len(messages)))
    pairs = [pair for pair in random_pairs(600, events=MANY) if "" not in {text.partition(" #")[0] for text in pair}]
    ends, asked = [], []
    for name, stops in (("whole", ()), ("parts", (1, 12, 20))):
        write_dataset(tmp_path / name / "dataset", [*pairs, ("", EVENTS[0])])
        counted = Counted()
        for shard in range(values.get("num_shards", 1)):
            config = get_config(annotate__backend="server", annotate__cache_dir="", annotate__shard=shard)
            config.annotate.update(values)
            view = annotate.STAGE.view(config.to_dict())
            for number in stops:
                with pytest.raises(Interrupted):
                    annotate.run(view, tmp_path / name, lambda _, number=number: Stops(counted, number))
            annotate.run(view, tmp_path / name, lambda _: counted)
        folder = tmp_path / name / "annotations" / annotate.label_name(config.annotate)
        files = [file for file in ("prob.npy", "neutral.json") if (folder / file).exists()]
        ends.append({file: (folder / file).read_bytes() for file in files})
        asked.append(counted.asked)
    assert ends[0] == ends[1]
    assert ("neutral.json" in ends[0]) == ("max_pairs" not in values)
    if "max_pairs" not in values:  # the most frequent first: training shows them in turn on either side
        order = captions_to_ask(*PairDataset(tmp_path / "parts/dataset").captions()).tolist()
        captions = json.loads(ends[1]["neutral.json"])["captions"]
        assert captions
        assert captions == [caption for caption in order if caption in captions]
    assert {*asked[1]} == {*asked[0]}
    assert len(asked[0]) == len({*asked[0]})
    again = len(asked[1]) - len(asked[0])  # of ratings, also those of which no pair was complete
    assert again <= 3 * values.get("num_shards", 1) or values.get("mode") == "rate"


class Counted:
    """A judge whose answers depend on the texts and their order alone."""

    model = "counted"

    def __init__(self):
        self.asked = []

    def answers(self, questions):
        for question in filter(None, questions):
            self.asked.append(question)
            digest = zlib.crc32(repr(tuple(question)).encode())
            yield question, QuestionAnswer(None if digest % 17 == 0 else digest % 100 / 99)

    def close(self):
        pass


class Lengths:
    """Rates a message by its length."""

    model = "lengths"

    def answers(self, questions):
        for question in filter(None, questions):
            yield question, QuestionAnswer(len(question.first) / 256)

    def close(self):
        pass


def test_an_interrupted_rating_without_a_cache_keeps_the_pairs_of_rated_messages(workdir):
    config = get_config(annotate__backend="server", annotate__mode="rate", annotate__cache_dir="")
    view, gone = annotate.STAGE.view(config.to_dict()), Incomplete("it is gone")
    captions = len({text for pair in random_pairs(600, events=MANY) for text in pair})
    with pytest.raises(UserError, match=r"it is gone; \d+ of 600 pairs are labelled") as stopped:
        annotate.run(view, workdir, lambda backend: Stops(Lengths(), captions * 2 // 3, gone))
    equal = sum(first == second for first, second in random_pairs(600, events=MANY))
    assert int(str(stopped.value).split()[3]) > equal + 100  # a quarter of 4/9 of the others are left for bad luck
    annotate.run(view, workdir, lambda backend: Lengths())
    assert Preference.UNKNOWN not in labels(workdir, annotate.label_name(view.annotate))


def test_pairs_that_were_not_asked_are_not_counted_as_unknown(workdir):
    """Of the first 100 pairs, the server has no verdict on those of one event."""
    with ChatServer(lambda number, body: "mumble" if EVENTS[0] in str(body["messages"]) else "") as chat:
        for shard in range(3):
            name = run_server(workdir, chat, max_pairs=100, num_shards=3, shard=shard)
    codes, questions = np.array(labels(workdir, name)), Questions(PairDataset(workdir / "dataset"), "msg").of_pair
    asked = np.isin(questions, questions[:100])  # later pairs, too, if they ask what one of the first asks
    unknown, not_asked = int((asked & (codes == 3)).sum()), int((~asked & (codes == 3)).sum())
    assert unknown
    assert not_asked > 200
    assert read_json(workdir / f"annotations/{name}/merged.json")["not_asked"] == not_asked
    (part,) = Run(workdir).sections()
    assert Run(workdir).facts()["annotate", name].judge.pairs == 600 - not_asked
    assert f"unknown {unknown / 600:.1%}<" in drawn(part.blocks)


def server_flags(workdir, chat, **values) -> list[str]:
    values = {"server.url": chat.url, "cache_dir": workdir / "answers", "both_orders": 0.0} | values
    more = [f"--config.annotate.{name.replace('__', '.')}={value}" for name, value in values.items()]
    return ["--config.annotate.backend=server", *more]


def start(workdir, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "motif_jax.launch", *STAGE, f"--workdir={workdir}", *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_again_and_again_it_loses_at_most_the_questions_in_flight(workdir):
    in_flight, allowed = 4, 0
    with ChatServer() as chat:
        chat.delay_s = 0.004
        options = server_flags(workdir, chat, cache_dir="", server__in_flight=in_flight)
        kills, served = 0, []
        while True:
            process = start(workdir, *options)
            served.append(len(chat.asked))
            wait_for(lambda: process.poll() is not None or len(chat.asked) >= served[-1] + 75)
            if process.poll() is not None:
                break
            number = (signal.SIGKILL, signal.SIGTERM)[kills % 2]
            process.send_signal(number)
            _, err = process.communicate()
            if number == signal.SIGTERM:
                assert process.returncode == 128 + number, err
                assert "Traceback" not in err
                assert "run the same command again to resume" in err
            kills += 1
            allowed += in_flight
        _, err = process.communicate()
        assert process.returncode == 0, err
        assert kills > 1
        assert labels(workdir, "server_msg_defaultgoal_default") == expected(workdir)
        assert len(chat.asked) - len(QUESTIONS) <= allowed


def test_two_jobs_on_one_shard_and_jobs_beside_each_other(launch, workdir):
    gate = threading.Event()  # no job is done before it opens
    with ChatServer(lambda number, body: "" if gate.wait() else "500") as chat:
        options = server_flags(workdir, chat, num_shards=2, server__timeout_s=LONG_S, server__in_flight=2)
        first = start(workdir, *options, "--config.annotate.shard=1")
        wait_for(lambda: chat.asked)
        second = launch(*STAGE, f"--workdir={workdir}", *options, "--config.annotate.shard=1", status=2)
        assert f"is being written by process {first.pid} on" in second.stderr
        whole = launch(*STAGE, f"--workdir={workdir}", status=2)  # a job that wants the workdir to itself
        assert "another run" in whole.stderr
        gate.set()
        for process in (first, start(workdir, *options, "--config.annotate.shard=0")):
            _, err = process.communicate()
            assert process.returncode == 0, err
    assert labels(workdir, "server_msg_defaultgoal_default") == expected(workdir)
    assert len(chat.asked) == len(QUESTIONS)


@pytest.mark.quick
def test_published_annotations_are_not_written_over(workdir):
    (workdir / "dataset/preference").mkdir()
    file = workdir / "dataset/preference/llama70b_msg_defaultgoal_default.npy"
    np.save(file, np.full(600, 3, np.int8))
    before = file.read_bytes()
    for ignore in (False, True):
        with pytest.raises(UserError, match=r"in the dataset already and was not made by this stage"):
            run(workdir, custom_name=file.stem, ignore_existing=ignore)
    assert file.read_bytes() == before


def test_a_job_array_shares_the_questions(workdir):
    for number in range(3):
        task = {"COUNT": "3", "ID": str(number), "MIN": "0"}
        task = {f"SLURM_ARRAY_TASK_{name}": value for name, value in task.items()}
        flags = "--config=configs/motif.py", f"--workdir={workdir}"
        output, _ = finished(FakeSlurm(workdir / "fakes").start("launch/slurm/annotate.sbatch", *flags, **task))
        assert ("are not finished yet" in output) == (number < 2)
    assert labels(workdir, "lexicon_msg_defaultgoal") == expected(workdir)
