import pytest
from report_test import Seen

from motif_jax.files import write_json, write_lines
from motif_jax.run import Facts, Run
from motif_jax.stages.report import columns, gather, write_page_over_seeds
from motif_jax.structs import Meaning
from motif_jax.system.runs import plan

pytestmark = pytest.mark.quick
MACHINE = {"processor": "A fine processor", "cores": 2, "commit": "abc123-dirty", "versions": {"jax": "9.9"}}
MEANINGS = (Meaning("depth_at_end", "deepest", "of all rooms"), Meaning("falls", "falls down", better="lower"))


def write_run(folder, success, reward=None, **more):
    """The results of one run: an evaluation of its policy and of random play, and two rows of training."""
    for at, (name, path, value) in enumerate((("policy-2000", ".", success), ("random", "", 0.25))):
        figures = {"success": {"mean": value, "low": value - 0.1, "high": value + 0.1}}
        figures |= {figure: dict.fromkeys(("mean", "low", "high"), values[at]) for figure, values in more.items()}
        write_json(folder / "evaluate" / name / "summary.json", {
            "path": path, "step": 2000, "greedy": False, "episodes": 20, "task": "toy", "reward": reward,
            "figures": figures, "did": {}, "ends": {}, "replays": {},
        })  # fmt: skip
    rows = [{"env_steps": step, "seconds": 1.0, "episode/success": success * step / 2000} for step in (1000, 2000)]
    (folder / "policy").mkdir(parents=True)
    write_lines(folder / "policy" / "metrics.jsonl", rows)
    said = Facts(steps=2000, seconds=1.0, machine=MACHINE, meanings=MEANINGS)
    Run(folder).stage("train_policy", "policy").report(said)


def test_the_page_has_means_over_seeds_and_names_what_is_missing(tmp_path, capsys):
    runs = plan("4", ["policy.discount=0.9,0.99"], 0)
    for run in runs:
        if run.folder != "policy.discount=0.99/seed-3":
            write_run(tmp_path / run.folder, 0.5 + 0.1 * run.seed)
    page = write_page_over_seeds(runs, tmp_path).read_text()
    scores = columns(gather(runs, tmp_path))
    assert sorted(scores["policy.discount=0.9"]["success"]) == pytest.approx([0.5, 0.6, 0.7, 0.8])
    assert len(scores["policy.discount=0.99"]["success"]) == 3
    assert len(scores["random play"]["success"]) == 4  # both variants play its games
    assert "Not evaluated yet of policy.discount=0.99: seed 3. They are left out." in page
    assert "A claim about learning needs at least 5 evaluated seeds; these are 3." in page
    assert "<b>0.65</b>" in page  # mean of the first variant
    assert "<polygon" in page  # its band over training
    assert "1.00 [1.00, 1.00]" in page  # the probability of improvement over random play
    assert "policy.discount=0.9: success 0.65 [" in capsys.readouterr().out


def test_the_page_says_how_it_was_made_which_side_is_better_and_what_never_changed(tmp_path):
    runs = plan("5", [], 0)
    for run in runs:
        own, same = (20.0 + run.seed, 90.0), {"depth_at_end": (1.0, 1.0), "gold": (0.0, 0.0)}
        write_run(tmp_path / run.folder, 0.5 + 0.1 * run.seed, steps=own, depth=own, falls=own, **same)
    page = Seen(write_page_over_seeds(runs, tmp_path, ["--config=motif:toy", "--workdir=runs/a b"]).read_text()).text
    for told in (
        "commit abc123-dirty",
        "'--workdir=runs/a b'",
        "gold 0.00, deepest 1.00.",  # what the world says about its figures
        "against random play falls down lower -68.00 1.00 [1.00, 1.00]",
        "against random play steps lower -68.00 1.00 [1.00, 1.00]",  # fewer are an improvement
        "against random play depth not known -68.00 0.00 [0.00, 0.00]",
    ):
        assert told in page


@pytest.mark.parametrize("value", ["policy.count_exponent", "policy.discount"])
def test_learnt_returns_are_compared_where_variants_have_one_reward(tmp_path, value):
    runs = plan("3", [f"{value}=0,1"], 0)
    for run in runs:
        reward = f"{run.seed}{run.variant if value == 'policy.count_exponent' else ''}"
        write_run(tmp_path / run.folder, 0.5 + 0.1 * run.seed, reward, intrinsic_return=[run.seed + 5.0] * 2)
    alike = value == "policy.discount"
    assert ("intrinsic_return" in columns(gather(runs, tmp_path))["random play"]) == alike
    page = Seen(write_page_over_seeds(runs, tmp_path).read_text()).text
    assert (f"{value}=1 against {value}=0 learnt return" in page) == alike
