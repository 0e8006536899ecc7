"""Anything may be written where users, models and disks write: it works, or it is refused in one sentence."""

import json
import os
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_dataset import EVENTS, random_pairs, write_dataset

from motif_jax import launch
from motif_jax.actors.players import parse_players
from motif_jax.annotation import endpoint
from motif_jax.annotation.annotator import Answer, Incomplete, Question, Sampling
from motif_jax.annotation.answers import read_answers
from motif_jax.annotation.endpoint import check_url, retry_after_s
from motif_jax.annotation.parsing import read_verdict
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.server import Server
from motif_jax.annotation.verdict_tokens import shares, to_answer
from motif_jax.captions import CaptionTable, decode, encode
from motif_jax.files import read_array
from motif_jax.preferences.merging import is_merged, merge
from motif_jax.preferences.shards import Part, Shard, read_record
from motif_jax.preferences.store import PairDataset
from motif_jax.rewards.labels import parse_annotators
from motif_jax.stages.annotate_setup import read_json
from motif_jax.stages.policy_choice import parse_mixture, parse_one
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
SETTINGS = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
WORDS = st.sampled_from([
    "explorer", "random", "runs/a", ":", "@", ",", "all", "last", "0.3", "1e999", "nan", "-1", "7", "/", " ", "é", "\0",
    "\n", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000,
])  # fmt: skip
GRAMMAR = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=8).map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def refused(attempt: Callable[[], object]) -> bool:
    """Whether it was refused, which must be in one sentence."""
    try:
        attempt()
    except UserError as error:
        return len(str(error).splitlines()) == 1
    return False


# ---- verdicts


@SETTINGS
@given(st.one_of(st.text(), st.lists(st.sampled_from(
    ["best", "BEST", "_", "description", "message", " ", "\n", '"', ":", "(", "1", "2", "None", "none", "is", "é", "\0"]
)).map("".join)))  # fmt: skip
def test_a_verdict_is_one_of_three_or_none(text):
    verdict = read_verdict(text)
    assert verdict in (None, 0.0, 0.5, 1.0)
    if verdict is not None:  # what comes later changes nothing
        assert read_verdict(text + ' ("best_description": 1)') == verdict


def test_long_answers_are_read_in_no_time():
    for part in (
        "best ",
        "best_",
        "best description ",
        "best_" * 3 + "description ",
        " ",
        "\n",
        "best description is ",
    ):
        read_verdict(part * 20_000)


@SETTINGS
@given(st.lists(st.tuples(st.text(max_size=6) | st.sampled_from(["1", "2", "0", "(", " 1"]),
                          st.floats(max_value=0.0, allow_nan=False)), max_size=8))  # fmt: skip
def test_shares_of_verdicts_are_shares(tokens):
    found = shares(tokens)
    better = to_answer(found, 0, 0, 0).second_better
    assert better is None or 0 <= better <= 1


# ---- captions


@SETTINGS
@given(st.text())
def test_any_text_becomes_a_caption_and_any_caption_a_text(text):
    shown = decode(encode(text))
    assert decode(encode(shown)) == shown
    if text.isascii() and "\0" not in text:
        assert shown == text[:256]


@SETTINGS
@given(st.lists(st.binary(min_size=256, max_size=256), max_size=6), st.integers(0, 2**32), st.booleans())
def test_a_table_of_captions_loads_as_it_was_saved_or_not_at_all(texts, seed, truncated):
    table = CaptionTable()
    table.intern(np.frombuffer(b"".join(texts), np.uint8).reshape(-1, 256))
    with tempfile.TemporaryDirectory() as folder:
        table.save(Path(folder))
        damage(random.Random(seed), Path(folder, random.Random(seed).choice(["captions.npy", "counts.npy"])), truncated)
        try:
            loaded = CaptionTable.load(Path(folder))
        except ValueError:
            return
        assert len(loaded) == len(loaded.counts)
        assert loaded.messages.shape == (len(loaded), 256)


def damage(rng: random.Random, file: Path, truncated: bool) -> None:
    """Flips some bits, most of them in the head, or cuts the file off."""
    data = bytearray(file.read_bytes())
    if truncated:
        file.write_bytes(data[: rng.randrange(len(data))])
        return
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(min(len(data), 130) if rng.random() < 0.7 else len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


@SETTINGS
@given(
    st.sampled_from([np.int8, np.float32, np.uint8]),
    st.integers(0, 2**32),
    st.booleans(),
    st.sampled_from(["", "r", "r+"]),
)
def test_an_array_is_an_array_or_a_value_error(dtype, seed, truncated, mapped):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.npy")
        np.save(file, np.arange(40).astype(dtype))
        size = file.stat().st_size
        damage(random.Random(seed), file, truncated)
        told = ""
        try:
            assert isinstance(read_array(file, mapped), np.ndarray)
        except ValueError as error:
            told = str(error)
        assert len(told.splitlines()) <= 1
        assert file.stat().st_size <= size


# ---- shards


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A dataset of which one of two shards is labelled."""
    path = write_dataset(tmp_path_factory.mktemp("shards") / "dataset", random_pairs(40))
    of_pair, facts = np.arange(40), {"dataset": "d", "num_shards": 1}
    with Shard(path / "preference/mine", Part(0, 1), 40, facts) as shard:
        for _ in range(2):
            shard.set(np.arange(30), np.linspace(0, 1, 30), 0.1)
            shard.commit(False, {})
    return path, of_pair, facts


@SETTINGS
@given(seed=st.integers(0, 2**32), truncated=st.booleans(), suffix=st.sampled_from([".json", ".npy", ".prob.npy"]))
def test_a_shard_is_what_was_written_or_refused(labelled, seed, truncated, suffix):
    whole, of_pair, facts = labelled
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dataset")
        shutil.copytree(whole, path)
        damage(random.Random(seed), path / f"preference/mine/{Part(0, 1).stem}{suffix}", truncated)
        dataset, found = PairDataset(path), []
        if not refused(lambda: found.append(Shard(path / "preference/mine", Part(0, 1), 40, facts))):
            with found[0] as shard, Shard(whole / "preference/mine", Part(0, 1), 40, facts) as good:
                np.testing.assert_array_equal(shard.codes, good.codes)
                np.testing.assert_array_equal(shard.prob, good.prob)
        refused(lambda: merge(dataset, "mine", 1, of_pair, facts, partial=True))


@SETTINGS
@given(content=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())
       | st.integers(1, 100_000).map(lambda depth: b"[" * depth))  # fmt: skip
def test_any_record_of_a_shard_is_read_or_refused(labelled, content):
    dataset = PairDataset(labelled[0])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.json")
        file.write_bytes(content)
        assert refused(lambda: read_record(file))
    folder = dataset.path / "preference/other"
    folder.mkdir(exist_ok=True)
    (folder / "merged.json").write_bytes(content)
    assert not is_merged(dataset, "other", {})


@SETTINGS
@given(st.lists(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 50_000)))
def test_any_lines_may_lie_in_the_answer_cache(lines):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        Path(folder, "y.jsonl").mkdir()
        for question, answer in read_answers(Path(folder)):
            assert isinstance(question.first + question.second + answer.said, str)
            assert answer.second_better is None or 0 <= answer.second_better <= 1


# ---- what users write


@SETTINGS
@given(GRAMMAR)
def test_who_plays_is_understood_or_refused(text):
    for parse in (parse_players, lambda text: parse_mixture(text, "--flag"), lambda text: parse_one(text, "--flag"),
                  parse_annotators, lambda text: read_json(text, "x"), check_url,
                  lambda text: make_prompt("reason", text or "gold", "default")):  # fmt: skip
        refused(lambda parse=parse: parse(text))
    assert 0 <= retry_after_s(text) <= 600
    if not refused(lambda: parse_players(text)):
        assert sum(parse_players(text).values()) == pytest.approx(1)


NAMES = ["seed", "stages", "env.task", "env.max_episode_steps", "env.reference_sober", "collect.num_pairs", "collect",
         "collect.collector", "collect.keep_empty", "annotate.goal", "annotate.vllm.extra", "reward.learning_rate",
         "policy.network", "nothing.here", "collect.num_pairs.more", ""]  # fmt: skip
VALUES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), WORDS,
    st.sampled_from(["True", "1", "-1", "1.5", "1e400", "()", "('collect',)", "None", "[", "{", "9" * 400, "0x10"]),
).filter(lambda text: "\0" not in text)  # fmt: skip
FLAGS = st.one_of(
    st.tuples(st.sampled_from(NAMES), VALUES).map(lambda pair: "--config.{}={}".format(*pair)),
    st.sampled_from(NAMES).map("--config.{}".format),
    st.tuples(st.sampled_from(["--workdir", "--stage", "--config", "--confg", "-x", "--"]), VALUES).map("=".join),
    VALUES,
)


@settings(SETTINGS, max_examples=150)
@given(st.sampled_from(["configs/motif.py", "configs/quickstart.py:toy", "configs/motif.py:{}"]), VALUES,
       st.lists(FLAGS, max_size=3))  # fmt: skip
def test_any_command_line_works_or_is_refused_in_one_sentence(file, argument, more):
    arguments = ["motif_jax", f"--config={file.format(argument)}", "--workdir=/tmp/nowhere", *more]
    status, told = in_a_process(lambda: parse(arguments))
    assert status in (0, 2), told
    assert status == 0 or told.count("\n") == 1, told


def parse(arguments: list[str]) -> None:
    """As `launch` begins; the stages' own checks too."""
    os.chdir(ROOT)
    launch.sys.argv = arguments
    launch.define_flags()
    launch.parse(arguments)
    if Path(launch.FLAGS.workdir) == Path("/tmp/nowhere"):
        from motif_jax.stages import annotate, collect, train_policy, train_reward

        for stage in (collect, annotate, train_reward, train_policy):
            stage.check(launch.FLAGS.config)


def in_a_process(work: Callable[[], None]) -> tuple[int, str]:
    """What becomes of it in a process of its own, because flags are defined once; and what it tells."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        status, told = 1, ""
        try:
            work()
            status = 0
        except UserError as error:
            status, told = 2, f"{error}\n"
        except SystemExit as done:  # --help
            status = done.code or 0
        except BaseException:
            told = traceback.format_exc()
        finally:
            os.write(writer, told.encode("utf-8", "replace")[-4000:])
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as file:
        told = file.read().decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), told


# ---- what servers say


QUESTIONS = [Question(f"{event} #{number}", EVENTS[0]) for number in range(4) for event in EVENTS]
PLACES = [["choices"], ["choices", 0], ["choices", 0, "message"], ["choices", 0, "message", "content"], ["usage"],
          ["usage", "prompt_tokens"], ["usage", "prompt_tokens_details"], ["choices", 0, "logprobs"],
          ["choices", 0, "logprobs", "content"], ["choices", 0, "logprobs", "content", 0],
          ["choices", 0, "logprobs", "content", 0, "top_logprobs"],
          ["choices", 0, "logprobs", "content", 0, "top_logprobs", 0, "logprob"]]  # fmt: skip


@pytest.mark.parametrize("mode", ["reason", "score"])
@settings(SETTINGS, max_examples=6)
@given(faults=st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=20, max_size=20))
def test_any_reply_of_a_server_is_an_answer_or_none(mode, faults, monkeypatch):
    for pause in ("FIRST_PAUSE_S", "MAX_PAUSE_S"):
        monkeypatch.setattr(endpoint, pause, 0.001)

    def twisted(body: dict) -> dict:
        reply = honest(body)
        place, value = faults[len(body["messages"][-1]["content"]) % len(faults)]
        inner = reply
        for key in place[:-1]:
            inner = inner[key] if (isinstance(inner, dict) and key in inner) or isinstance(inner, list) else {}
        if isinstance(inner, dict | list):
            inner[place[-1]] = value
        return reply

    with ChatServer() as chat:
        honest, chat.complete = chat.complete, twisted
        sampling = Sampling(0.1, 0.95, 50, 200) if mode == "reason" else None
        server = Server(chat.url, "", make_prompt(mode, "gold", "default"), sampling, in_flight=8, patience_s=0.3)
        answers: dict[Question, Answer] = {}
        told = ""
        try:
            answers.update(server.answers(QUESTIONS))
        except Incomplete as stopped:  # more of it was garbage than a job goes on with
            told = str(stopped)
        finally:
            server.close()
    assert len(told.splitlines()) <= 1
    for answer in answers.values():
        answer.said.encode()
        assert answer.second_better is None or 0 <= answer.second_better <= 1
        assert all(isinstance(number, int) and number >= 0 for number in answer[3:])
