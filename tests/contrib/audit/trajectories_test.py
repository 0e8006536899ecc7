import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import planted_worlds
import pytest
from conftest import ROOT, refusal

import motif_jax
from motif_jax.contrib.audit import command, trajectories
from motif_jax.contrib.audit.recording import _Rows
from motif_jax.contrib.audit.trajectories import audit_file
from motif_jax.files import LineFile, read_json
from motif_jax.structs import UserError

ROW = {"episode": 0, "step": 0, "reward": 1.0}


def write(file: Path, rows) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def farmed(episodes: int = 30) -> list[dict]:
    return [{"episode": at, "step": step, "reward": 1.0, "caption": f"pulls lever {step}"}
            for at in range(episodes) for step in range(10)]  # fmt: skip


@pytest.mark.parametrize("fault", planted_worlds.FAULTS)
def test_a_planted_fault_is_found(fault):
    assert planted_worlds.FAULTS[fault] in planted_worlds.found("kitchen", fault, seed=0)


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("world", planted_worlds.WORLDS)
def test_nothing_is_found_without_a_fault(world, texts):
    assert not planted_worlds.found(world, "", seed=0, texts=texts)


def paid(*steps: tuple[str, float, float], times: int = 1, episodes: int = 30) -> list[dict]:
    """In each episode these steps, so often: what they show, what they are paid, and what they are worth."""
    return [{"episode": at, "caption": caption, "reward": reward, "worth": worth}
            for at in range(episodes) for caption, reward, worth in steps * times]  # fmt: skip


def test_what_is_missing_is_named_and_the_rest_is_checked(tmp_path):
    record = audit_file(write(tmp_path / "rows.jsonl", farmed()))
    assert [one["check"] for one in record["findings"]] == ["loops"]
    assert "in 100 % [89, 100] of the episodes the repeats of 'pulls lever #'" in record["findings"][0]["sentence"]
    worthless = "the file has no column worth"
    assert {one["check"]: one["why"] for one in record["not_looked_at"]} == {
        "pay for neutral captions": worthless, "inflation": worthless, "inversions": worthless,
        "repeated questions": worthless, "held pay": "the file has no column observation",
        "proxy against outcome": "the file has no column outcome",
        "flooding": "0 texts have 20 words or more, and 20 are needed",
    }  # fmt: skip
    few = audit_file(write(tmp_path / "rows.jsonl", farmed(3)))
    assert {"check": "loops", "why": "the file has 3 episodes, and 20 are needed"} in few["not_looked_at"]
    no_texts = audit_file(write(tmp_path / "rows.jsonl", [ROW, ROW | {"step": 1}]))
    why = "the file has no column caption (or text), and no column observation"
    assert {"check": "loops", "why": why} in no_texts["not_looked_at"]


def test_observations_stand_for_captions_and_keep_their_digits(tmp_path):
    rows = [{"episode": at, "step": step, "reward": 1.0, "observation": f"c{step % 2}²"}
            for at in range(30) for step in range(20)]  # fmt: skip
    record = audit_file(write(tmp_path / "rows².jsonl", rows))
    assert sorted(one["sentence"].partition("'")[2][:3] for one in record["findings"]) == ["c0²", "c1²"]
    assert [one["captions"] for one in record["paid"]] == ["c0²", "c1²"]
    assert record["file"].endswith("rows².jsonl")


def test_the_return_is_compared_with_the_outcome_pair_by_pair(tmp_path):
    # Of 40 episodes, 20 succeed, and all of them have a lower return than the others.
    rng, success = np.random.default_rng(0), np.arange(40) % 2
    returns = np.where(success, 0.0, 1.0) + rng.random(40) / 2
    rows = [{"episode": at, "reward": float(value), "outcome": bool(won)}
            for at, (value, won) in enumerate(zip(returns, success, strict=True))]  # fmt: skip
    (finding,) = audit_file(write(tmp_path / "rows.jsonl", rows))["findings"]
    assert finding["check"] == "proxy against outcome"
    assert "the return is on the wrong side in 100 % [100, 100] of the pairs of episodes" in finding["sentence"]
    rows[1]["outcome"] = rows[3]["outcome"] = False  # two failures with a low return
    (finding,) = audit_file(write(tmp_path / "rows.jsonl", rows))["findings"]
    lower = [returns[at] for at in range(40) if success[at] and at not in (1, 3)]
    wrong = 18 * 20 + sum(value < returns[at] for value in lower for at in (1, 3))
    assert finding["size"] == pytest.approx(wrong / (18 * 22))


@pytest.mark.parametrize(("rows", "outcome", "wanted"), [
    ([{"episode": "b", "step": 1, "ended": True}, {"episode": "a"}, {"episode": "b"}], "",  # mixed, and one unfinished
     {"episodes": ["b"], "unfinished": 1, "episode": [0, 0]}),
    ([{"reward": {"task": 1.0}}, {"step": 1, "reward": {"form": 0.5}, "action": 3}], "",
     {"reward": [1.0, 0.5], "unread": ["action"]}),
    ([{"outcome": 5.0, "metrics": {"right": 1.0}}, {"episode": 1, "outcome": 5.0}], "right", {"outcome": [1, np.nan]}),
])  # fmt: skip
def test_rows_are_read_by_episode_and_name(tmp_path, rows, outcome, wanted):
    found = trajectories.read_trajectories(write(tmp_path / "rows.jsonl", [ROW | row for row in rows]), outcome=outcome)
    for name, value in wanted.items():
        np.testing.assert_array_equal(getattr(found, name), value)


def test_the_torn_last_line_of_a_running_writer_is_left_out(tmp_path):
    file = write(tmp_path / "rows.jsonl", [ROW])
    with open(file, "a") as out:
        out.write('{"episode": 0, "st')
    assert len(trajectories.read_trajectories(file).episode) == 1


def test_kinds_with_little_pay_are_put_together_where_the_table_would_be_large(tmp_path, monkeypatch):
    monkeypatch.setattr("motif_jax.contrib.audit.trajectories.MOST_CELLS", 30)
    record = audit_file(write(tmp_path / "rows.jsonl", paid(("a", 10, -1), *((one, 1, -1) for one in "bcdefghij"))))
    shares = {one["captions"]: one["share"] for one in record["paid"]}
    assert shares == pytest.approx({"a": 10 / 19, "(rare captions)": 9 / 19})


def test_a_monitor_file_of_stable_baselines_is_one_row_per_episode(tmp_path):
    file = tmp_path / "monitor.csv"
    rows = "".join(f"{-at},{at},{at}.5,{at % 2 == 1}\n" for at in range(40))
    file.write_text(f'#{{"t_start": 1.0, "env_id": "None"}}\nr,l,t,is_success\n{rows}')
    found = trajectories.read_trajectories(file)
    assert found.reward.tolist() == [-float(at) for at in range(40)]
    assert found.outcome.tolist() == [0.0, 1.0] * 20
    assert len(found.episode) == len(found.episodes)
    assert trajectories.read_trajectories(file, outcome="l").outcome.tolist() == [float(at) for at in range(40)]
    refusal(lambda: trajectories.read_trajectories(file, outcome="wins"), "no row has a reward, a metric or a column")
    file.write_text("#{}\nr,l,t\n1.0,3,0.1\nx,3,0.1\n")
    refusal(lambda: trajectories.read_trajectories(file), match="line 4: reward is 'x', not a number up to 1e[+]30")

    file.write_text("r,l,t\n1.0,3,0.1\n\n2.0,3,0.1\n3.")
    assert trajectories.read_trajectories(file).reward.tolist() == [1.0, 2.0]
    file.write_text("r,l,t\n" + "1," * 600_000)
    refusal(lambda: trajectories.read_trajectories(file), "line 2 is longer than 1,048,576 bytes")


@pytest.mark.parametrize(("rows", "found"), [
    # A last row without a caption is not the neutral moment where the worth tells it, nor a good step without one.
    (paid(("good", 4, 4), ("small", 1, 1), ("nothing", 0, 0), times=5, episodes=60)
     + [{"episode": at, "step": 99, "reward": -10.0, "ended": True} for at in range(60)], {}),
    (paid(("noise", 0, 0), ("", 1, 1), episodes=40), {}),
    # The best caption may contain a plus.
    (paid(("wait", 0, 0), ("2 + 2", 1, 2), ("sum", 3, 1), times=3),
     {"inflation": "'sum' has 50 % of the worth of '# + #' and 300 % of its reward"}),
    # A constant reward, of which the middle gets exactly twice its part without any spread, hides no other finding.
    (paid(("nothing", 1, 0), ("small", 1, 1), ("good", 1, 2), times=10),
     {"loops": "the repeats of 'nothing'", "pay for neutral captions": "33 % [33, 33] of the pay"}),
])  # fmt: skip
def test_captions_and_their_pay_are_not_mistaken(tmp_path, rows, found):
    record = audit_file(write(tmp_path / "rows.jsonl", rows))
    sentences = {one["check"]: one["sentence"] for one in record["findings"]}
    assert sentences.keys() == found.keys()
    assert all(part in sentences[check] for check, part in found.items())
    assert rows[1]["caption"] or record["paid"][0]["captions"] == "(no caption)"


def need_pyarrow():
    pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install motif_jax[dev]")
    return sys.modules["pyarrow"]


def completion(at: int, **columns) -> dict:
    return {"step": at // 8, "prompt": "Count.", "completion": f"It is {at}.", "advantage": 0.1, **columns}


def rollout(at: int, **columns) -> dict:
    said = [{"role": "assistant", "content": f"It is {at}."}, {"role": "user", "content": "No."}]
    return {"example_id": at // 2, "prompt": [{"role": "user", "content": "Count."}], "completion": said,
            "reward": 0.5, "metrics": {"exact": float(at % 2)}, "exact": 1.0, "error": None, **columns}  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "folder"])
def test_completions_of_trl_are_episodes_with_a_reward_for_each_function(tmp_path, kind):
    rows = [completion(at, right=float(at % 2), form=None if at < 2 else 0.5) for at in range(6)]
    rows.insert(3, completion(9, right=None, form=None))  # to which no reward applies
    file = tmp_path / f"rows.{kind}"
    if kind == "jsonl":
        write(file, rows)
    else:
        pyarrow, parts = need_pyarrow(), {file: rows}
        if kind == "folder":
            file.mkdir()
            parts = {file / f"completions_{at:05d}.parquet": rows[4 * at : 4 * at + 4] for at in range(2)}
        for name, part in parts.items():
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(part), name)
    found = trajectories.read_trajectories(file, outcome="right")
    assert {name: values.tolist() for name, values in found.rewards.items()} == {
        "right": [0, 1] * 3, "form": [0, 0, 0.5, 0.5, 0.5, 0.5],
    }  # fmt: skip
    assert found.outcome.tolist() == [0, 1] * 3
    assert found.captions.texts == [f"It is {at}." for at in range(6)]
    assert len(found.episode) == len(found.episodes)
    refusal(lambda: trajectories.read_trajectories(file, outcome="wrong"), "or a column 'wrong' (--outcome)")


def test_results_of_verifiers_have_their_reward_and_an_outcome_of_their_metrics(tmp_path):
    rows = [rollout(at) for at in range(4)] + [rollout(4, error={"error": "OverlongPrompt"}, reward=0.0)]
    found = trajectories.read_trajectories(write(tmp_path / "results.jsonl", rows), outcome="exact")
    assert (found.reward.tolist(), found.outcome.tolist(), found.unfinished) == ([0.5] * 4, [0, 1, 0, 1], 1)
    assert found.captions.texts[:2] == ["It is 0.", "It is 1."]  # what the user says is not the model's
    rows[4]["reward"] = None
    assert trajectories.read_trajectories(write(tmp_path / "results.jsonl", rows)).unfinished == 1
    with pytest.raises(UserError, match="it has no row of an episode that has ended"):
        trajectories.read_trajectories(write(tmp_path / "results.jsonl", rows[4:]))


@pytest.mark.parametrize(("row", "why"), [
    (completion(0), "it has no row"),
    (completion(0, right=10**400), "line 1: reward is {'right': 1000"),
    (completion(0, right=1.0) | {"completion": 5}, "line 1: completion is 5, not a text or a list of messages"),
    (completion(0, right=1e31), "line 1: reward is {'right': 1e+31}, not a number up to 1e+30"),
    (rollout(0, reward=None), "line 1: reward is None, not a number up to 1e+30"),
])  # fmt: skip
def test_a_rollout_that_cannot_be_used_is_refused(tmp_path, row, why):
    refusal(lambda: trajectories.read_trajectories(write(tmp_path / "rows.jsonl", [row])), why)


@pytest.mark.parametrize(("kind", "why"), [
    ("long texts", "64 rows after row 0 have more than"),
    ("many messages", "1 rows after row 0 have more than"),
    ("many numbers", "a row group has more than"),
])  # fmt: skip
def test_parquet_that_stores_huge_equal_values_once_is_refused_before_it_is_decoded(tmp_path, kind, why):
    pyarrow, long, rows = need_pyarrow(), "long " * 2**18, [completion(0, right=1.0)]  # 1.25 MiB
    if kind == "long texts":
        rows = [completion(at, right=1.0) | {"completion": long} for at in range(100)]
    elif kind == "many messages":
        rows[0]["completion"] = [{"role": "assistant", "content": long}] * 100
    table = pyarrow.Table.from_pylist(rows)
    if kind == "many numbers":
        many = pyarrow.array(np.zeros(2**25 + 1, bool))
        table = table.append_column("more", pyarrow.ListArray.from_arrays([0, len(many)], many))
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", dictionary_pagesize_limit=2**24)
    assert (tmp_path / "rows.parquet").stat().st_size < 2**21
    (tmp_path / "text.parquet").write_text("PAR1 and no more")
    refusal(lambda: trajectories.read_trajectories(tmp_path / "text.parquet"), match="text.parquet: it is not Parquet")
    usual, pool = pyarrow.default_memory_pool(), pyarrow.proxy_memory_pool(pyarrow.default_memory_pool())
    pyarrow.set_memory_pool(pool)
    try:
        refusal(lambda: trajectories.read_trajectories(tmp_path / "rows.parquet"), match=f"rows.parquet: {why}")
    finally:
        pyarrow.set_memory_pool(usual)
    assert pool.max_memory() < 2**25


def test_parquet_counts_the_parts_of_a_map_by_row(tmp_path):
    pyarrow, rows = need_pyarrow(), [completion(at, right=1.0) for at in range(4096)]
    maps = pyarrow.array([[("text", f"{at} " * 4096)] for at in range(4096)], pyarrow.map_(*[pyarrow.string()] * 2))
    table = pyarrow.Table.from_pylist(rows).append_column("more", maps)
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    assert len(list(trajectories.parquet_rows([tmp_path / "rows.parquet"]))) == len(rows)


def test_the_repetition_of_a_text_counts_its_phrases():
    # 24 words have 21 phrases of four; the first half says nothing twice, and "a b" makes only "a b a b" and "b a b a".
    words = " ".join(f"word{letter}" for letter in "abcdefghijkl")
    assert trajectories.repetition_of(f"{words} {'a b ' * 6}") == pytest.approx(1 - (12 + 2) / 21)
    assert np.isnan(trajectories.repetition_of("a " * 19))


BAD = {
    "[1, 2]": "line 2: it is [1, 2], not an object with episode and reward",
    "{": "line 2: it is not JSON: Expecting property name",
    '{"episode": 1, "reward": NaN}': "line 2: it is not JSON: NaN is not a number",
    '{"episode": 1, "reward": {"a": true}}': "line 2: reward is {'a': True}, not a number up to 1e+30",
    '{"episode": 1, "reward": {}}': "line 2: reward is {}, not a number",
    json.dumps(ROW | {"episode": 1, "reward": dict.fromkeys(map(str, range(33)), 1)}): "line 2: reward is {'0': 1, ",
    '{"reward": 1}': "line 2: episode is None, not a whole number or a text of at most 300 characters",
    '{"episode": 1.5, "reward": 1}': "line 2: episode is 1.5, not a whole number or a text",
    '{"episode": 1, "reward": 1, "step": -1}': "line 2: step is -1, not a whole number from 0 to",
    '{"episode": 0, "reward": 1, "step": 0}': "line 2: step 0 of episode 0 is on line 1, too",
    '{"episode": 1, "reward": 1, "ended": true}\n{"episode": 1, "reward": 1}': "line 3: episode 1 has ended before",
    '{"episode": 1, "reward": 1, "caption": ["x"]}': "line 2: caption is ['x'], not a text",
    '{"episode": 1, "reward": 1, "ended": 1}': "line 2: ended is 1, not true or false",
    '{"episode": ' + "[" * 200_000: "line 2: it is not JSON: maximum recursion depth",
    '{"episode": 1, "reward": ' + "1" * 5000 + "}": "line 2: it is not JSON: Exceeds the limit (4300 digits)",
    '{"caption": "' + "x" * 2**20 + '"}': "line 2 is longer than 1,048,576 bytes",
    '{"episode": "\xff"}': "line 2: it is not JSON: 'utf-8' codec can't decode",
}


@pytest.mark.parametrize("line", BAD, ids=[text.partition(": ")[2][:30] or text[:30] for text in BAD.values()])
def test_a_bad_line_is_refused_in_one_sentence(tmp_path, line):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(json.dumps(ROW).encode() + b"\n" + line.encode("latin-1") + b"\n")
    refusal(lambda: trajectories.read_trajectories(file), f"cannot read {str(file)!r}: {BAD[line]}")


def test_limits_are_named(tmp_path, monkeypatch):
    file = write(tmp_path / "rows.jsonl", farmed())
    monkeypatch.setattr(trajectories, "MOST_TEXTS", 4)
    skipped = {one["check"]: one["why"] for one in audit_file(file)["not_looked_at"]}
    assert skipped["loops"].startswith("the column caption (or text) has more than 4 different values")
    monkeypatch.setattr(trajectories, "MOST_ROWS", 10)
    refusal(lambda: trajectories.read_trajectories(file), "line 11: there are more than 10 rows")


@pytest.mark.parametrize("kind", ["pipe", "directory", "empty", "missing", "circle"])
def test_what_is_not_a_file_of_rows_is_refused(tmp_path, kind, capsys, monkeypatch):
    file = tmp_path / "rows.jsonl"
    circle = lambda file: file.symlink_to(file)  # noqa: E731
    {"pipe": os.mkfifo, "directory": os.mkdir, "empty": Path.touch, "missing": str, "circle": circle}[kind](file)
    if kind == "directory":
        monkeypatch.chdir(file)
        assert command.main(["."]) == 2
        assert "it is not a regular file" in capsys.readouterr().err
    assert command.main([str(file)]) == 2
    said = {"empty": "it has no row of an episode that has ended", "missing": "No such file or directory"}
    why = (said | {"circle": "Too many levels of symbolic links"}).get(kind, "it is not a regular file")
    assert capsys.readouterr().err == f"motif_jax: cannot read {str(file)!r}: {why}\n"


def test_the_command_writes_a_page_and_fails_on_what_it_is_asked_to(tmp_path, capsys):
    file = write(tmp_path / "rows.jsonl", farmed())
    assert command.main([str(file)]) == 0
    said = capsys.readouterr().out
    assert f"audit: {file}: 30 episodes, 300 rows\naudit: 1 finding\naudit: 1. loops: in 100 %" in said
    assert read_json(tmp_path / "rows-audit/audit.json")["episodes"] == 30
    assert "pulls lever #" in (tmp_path / "rows-audit/index.html").read_text()
    fails = {"loops": 1, "held-pay": 0, "held pay, loops": 1, "any": 1, "nonsense": 2}
    for names, status in fails.items():
        assert command.main([str(file), f"--fail-on={names}", f"--out={tmp_path / 'out'}"]) == status
    assert "there is no finding 'nonsense': choose any, pay-for-neutral-captions" in capsys.readouterr().err
    assert command.main([str(file), f"--out={file}"]) == 2
    link = tmp_path / "mine/link.jsonl"
    link.parent.mkdir()
    link.symlink_to(file)
    before = sorted(tmp_path.iterdir())
    assert command.main([str(link)]) == 0
    assert (link.parent / "link-audit/audit.json").is_file()
    assert sorted(tmp_path.iterdir()) == before  # nothing beside the file of others


def test_the_command_loads_neither_jax_nor_games(tmp_path):
    file = write(tmp_path / "rows.jsonl", farmed())
    code = f"import sys; from motif_jax.contrib.audit.command import main; main([{str(file)!r}])\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"jax", "flax", "nle", "gymnasium", "optax", "orbax", "torch"}
    code = "import sys, motif_jax; print('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


class Penalised(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Text(9), gymnasium.spaces.Discrete(2)

    def reset(self, **options):
        self.left = 3
        return "begins", {}

    def step(self, action):
        self.left -= 1
        return f"{self.left} left", np.float32(action), self.left == 0, False, {"is_success": not self.left}


def test_a_recorded_environment_is_read_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    for _ in range(2):  # two runs append to one file
        env = motif_jax.record(Penalised(), file)
        for action in (0, 1):
            env.reset(seed=0)
            for _ in range(3 if action else 2):  # the first episode is not finished
                env.step(action)
        env.close()
    found = trajectories.read_trajectories(file)
    assert (found.reward.tolist(), found.outcome.tolist(), found.unfinished) == ([1.0] * 6, [1.0] * 2, 2)
    assert [found.captions.texts[at] for at in found.captions.number] == ["2 left", "1 left", "0 left"] * 2
    assert found.observations.number.tolist() == [0, 1, 2] * 2


@pytest.mark.parametrize("mode", [*gymnasium.vector.AutoresetMode])
def test_a_recorded_vector_has_the_episodes_of_each_environment(tmp_path, mode):
    file, ends = tmp_path / "rows.jsonl", mode is gymnasium.vector.AutoresetMode.DISABLED
    vector = gymnasium.vector.SyncVectorEnv([Penalised, Penalised], autoreset_mode=mode)
    env = motif_jax.record(vector, file)
    env.reset(seed=0)
    for _ in range(8):
        _, _, terminated, *_ = env.step(np.array([0, 1]))
        if ends and terminated.any():
            env.reset(options={"reset_mask": terminated})
    env.close()
    found = trajectories.read_trajectories(file)
    assert found.reward.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0] * 2
    assert found.outcome.tolist() == [1.0] * 4
    assert [found.captions.texts[at] for at in found.captions.number] == ["2 left", "1 left", "0 left"] * 4


@pytest.mark.parametrize(("reward", "paid"), [(True, 1.0), (np.array([2.0]), 2.0), (np.nan, None), (np.inf, None)])
def test_a_reward_is_recorded_as_a_number_or_refused(tmp_path, reward, paid):
    env = motif_jax.record(gymnasium.wrappers.TransformReward(Penalised(), lambda _: reward), tmp_path / "rows.jsonl")
    env.reset(seed=0)
    if paid is None:
        with pytest.raises(ValueError, match="which motif-audit does not read"):
            env.step(0)
    else:
        env.step(0)
        assert json.loads((tmp_path / "rows.jsonl").read_text())["reward"] == paid
    env.close()


def test_an_own_outcome_alone_is_read_and_a_failed_write_frees_the_file(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    rows = _Rows(file, None, lambda info, steps: 2.0)
    rows.begin()
    assert rows.row("end", 1.0, True, {"is_success": None})["outcome"] == 2.0
    with pytest.raises(TypeError):
        rows.write(None)
    with open(file, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    monkeypatch.setattr(LineFile, "__init__", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as failed:  # its traceback keeps the file open
        _Rows(file, None, None)
    with open(file, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert failed
    rows.close()


def test_the_guide_goes_from_a_bent_cartpole_to_its_finding(tmp_path, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3", reason="needs stable-baselines3: pip install motif_jax[dev]")
    monkeypatch.chdir(tmp_path)
    makes, trains, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/trajectories.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(makes, names)
    exec(trains.replace("5_000", "1_024"), names)
    assert command.main(["cartpole.jsonl", "--fail-on=proxy-against-outcome"]) == 1
    assert "1. proxy against outcome: the return is on the wrong side in 100 %" in capsys.readouterr().out
