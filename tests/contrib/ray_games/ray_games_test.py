"""Games on other hosts: a real cluster of Ray with two nodes on this machine, against the same games played here."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import LONG_S, ROOT, get_config, refusal, run_stage, wait_for
from pool_test import OUTPUTS, MessagePolicy

from motif_jax import experiment
from motif_jax.actors.pool import ActorPool
from motif_jax.files import read_json
from motif_jax.stages import collect, evaluate, train_policy
from motif_jax.stages.collect import play_in_order
from motif_jax.structs import UserError
from motif_jax.system.runs import plan

ray = pytest.importorskip("ray", reason="needs Ray (the extra `ray`)")

from motif_jax.contrib.ray_games import cluster as clusters  # noqa: E402
from motif_jax.contrib.ray_games import remote  # noqa: E402
from motif_jax.contrib.ray_games.remote import RemotePool  # noqa: E402
from motif_jax.contrib.ray_games.sections import RayGames  # noqa: E402

SEEN = MessagePolicy.reads
OPTIONS = {"games_per_worker": 4, "rollout_length": 8, "seed": 5, "hang_timeout_s": LONG_S, "outputs": OUTPUTS}
ENV = {"task": "toy", "max_episode_steps": 60}
NODE = {"object_store_memory": 2**27, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose head has no cores, with two nodes of two; this process has joined it."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in clusters.VARIABLES.items():
            patch.setenv(name, value)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE})
        for _ in range(2):
            cluster.add_node(num_cpus=2, wait=False, **NODE)
        cluster.wait_for_nodes()
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        clusters.connect(cluster.address)
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def hosts(cluster, hosts=2, cores=1):
    return RayGames(address=cluster.address, hosts=hosts, cores=cores)


def actors():
    """Process ids of the hosts of games: children of Ray's nodes, which are children of this process."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
    nodes = {pid for pid, parent, _ in rows if parent == str(os.getpid())}
    return [int(pid) for pid, parent, words in rows if parent in nodes and words.startswith("ray::GamesOfHost")]


def both():
    """Those of a pool with two hosts; those of the pool before may not have ended yet."""
    return wait_for(lambda: len(found := actors()) == 2 and found)


def episodes(pool, policy, over):
    """The first episodes in the order of their numbers, with all their steps, until `over(episodes)`."""
    found: list = []
    names = {name: name for name in ("action", "reward", "terminated", *SEEN)}
    for ready in play_in_order(pool, policy, names, 0):
        found += ready
        if over(found):
            break
    return found


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.info == other.info
        assert one.steps.keys() == other.steps.keys()
        assert all(np.array_equal(one.steps[name], other.steps[name]) for name in one.steps)


def played_here(policy, player, count):
    with ActorPool(ENV, SEEN, num_workers=0, player=player, **OPTIONS) as pool:
        return episodes(pool, policy, lambda found: len(found) >= count)[:count]


def test_a_host_asks_for_an_episode_for_each_game_as_all_may_end_at_once():
    with ActorPool(ENV, SEEN, num_workers=1, groups=2, leased=True, **OPTIONS) as pool:
        pool.owe(range(4))  # which the games of both groups begin
        wait_for(lambda: pool.short == 4)
        pool.owe(range(4, 7))
        assert pool.short == 1


@pytest.mark.parametrize(("player", "local", "kills"), [
    ("random", 1, 2), ("", 0, 2), pytest.param("", 1, 6, marks=pytest.mark.slow),
])  # fmt: skip
def test_hosts_that_are_killed_lose_no_game_and_spoil_none(cluster, player, local, kills, capsys):
    policy, rng = None if player else MessagePolicy(), np.random.default_rng(1)
    killed, due = set(), 20

    def over(found):
        nonlocal due
        if len(found) >= due and len(killed) < kills and (alive := sorted({*actors()} - killed)):
            os.kill(victim := int(rng.choice(alive)), signal.SIGKILL)
            killed.add(victim)
            due = len(found) + int(rng.integers(1, 60))
        return len(found) >= 120 and pool.restarts == kills

    with RemotePool(ENV, SEEN, cluster=hosts(cluster), num_workers=local, player=player, **OPTIONS) as pool:
        assert pool.num_games == (local + 2) * OPTIONS["games_per_worker"]
        assert both()  # nobody else is killed
        found = episodes(pool, policy, over)
        assert not pool.given_up
    same(found, played_here(policy, player, len(found)))
    assert capsys.readouterr().out.count("is lost with") == kills


def test_a_host_that_joins_later_takes_the_place_of_a_lost_one(cluster):
    policy, stages = MessagePolicy(), []

    def over(found):
        if len(found) >= 20 and not stages:
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            stages.append(len(found))
        elif pool.restarts and len(found) >= stages[0] + 20 and len(stages) == 1:  # the other host plays on
            assert [host.plays for host in pool._hosts].count(True) == 1
            cluster.add_node(num_cpus=2, wait=False, **NODE)
            stages.append(len(found))
        return len(stages) == 2 and all(host.plays for host in pool._hosts)

    with RemotePool(ENV, SEEN, cluster=hosts(cluster, 2, 2), num_workers=0, **OPTIONS) as pool:
        found = episodes(pool, policy, over)
        assert both()
    same(found, played_here(policy, "", len(found)))
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 3)  # until Ray has missed the lost one


def test_a_host_of_another_program_or_with_too_few_cores_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(remote, "program", lambda: clusters.program() | {"nle": "0.9"})
    with pytest.raises(UserError, match=r"the host \S+ has nle [\d.]+, and the learner's host 0.9: .*ray_games.hosts"):
        RemotePool(ENV, SEEN, cluster=hosts(cluster), num_workers=0, **OPTIONS)
    monkeypatch.setattr(clusters, "JOIN_S", 0.0)
    with pytest.raises(UserError, match=r"3 hosts with 2 cores each .* has room for 2: .*ray_games.hosts, .cores"):
        RemotePool(ENV, SEEN, cluster=hosts(cluster, 3, 2), num_workers=0, **OPTIONS)
    assert not clusters.difference(clusters.program(), 1)
    assert "not 10000 (--config.ray_games.cores)" in clusters.difference(clusters.program(), 10_000)


def test_a_host_without_this_program_says_so():
    code = "import sys, ray.cloudpickle; sys.modules['motif_jax'] = None\n"
    code += "print(ray.cloudpickle.load(sys.stdin.buffer)().begin({}, 1, []))"
    sent = ray.cloudpickle.dumps(remote.make_actor())
    said = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True).stdout.decode()
    assert "lacks this program: No module named 'motif_jax" in said


def test_an_error_over_there_names_the_host(cluster):
    with pytest.raises(UserError, match="must be a multiple of 2 groups, not 3"):
        RemotePool(ENV, SEEN, cluster=hosts(cluster), num_workers=0, **{**OPTIONS, "games_per_worker": 3})
    with (
        pytest.raises(UserError, match=r"the game 'faulty_games:Raising' failed with KeyError.*actor worker 0"),
        RemotePool(ENV | {"task": "faulty_games:Raising"}, SEEN, cluster=hosts(cluster), num_workers=0, **OPTIONS)
        as pool,
    ):  # fmt: skip
        episodes(pool, MessagePolicy(), lambda found: False)


@pytest.mark.parametrize(("stage", "written"), [
    (collect, "dataset/**/*.npy"), (evaluate, "evaluate/random/episodes.jsonl"),
])  # fmt: skip
def test_what_is_collected_and_evaluated_is_the_same_on_several_hosts(cluster, tmp_path, stage, written):
    for hosts, folder in ((2, "many"), (0, "one")):
        config = get_config(argument="toy")
        config.collect.update(num_workers=0, num_pairs=50, games_per_worker=4)
        config.evaluate.update(policy="random", baselines="", episodes=30, num_workers=0, games_per_worker=4)
        config.ray_games.update(address=cluster.address, hosts=hosts, cores=1)
        run_stage(stage, config, tmp_path / folder)
    files = list((tmp_path / "one").glob(written))
    assert files
    for file in files:
        assert (tmp_path / "many" / file.relative_to(tmp_path / "one")).read_bytes() == file.read_bytes()


def test_training_goes_on_when_a_host_is_killed(cluster, tmp_path, at_batch, capsys):
    def kill():
        os.kill(victim := both()[0], signal.SIGKILL)
        wait_for(lambda: len({*actors()} - {victim}) == 2)  # or training may be over before Ray tells of the loss

    at_batch(3, kill)
    config = get_config(argument="toy")
    config.policy.update(
        {"network": "small", "intrinsic_coefficient": 0.0, "num_workers": 0, "games_per_worker": 8, "groups": 2}
        | {"rollout_length": 8, "batch_size": 64, "warmup_steps": 20, "tensorboard": False, "train_for_env_steps": 1280}
    )
    config.ray_games.update(address=cluster.address, hosts=2, cores=1)
    run_stage(train_policy, config, tmp_path)
    summary = read_json(tmp_path / "policy/summary.json")
    assert summary["env_steps"] == 1280
    assert summary["worker_restarts"] == 1
    assert "is lost with" in capsys.readouterr().out


def test_seeds_on_a_cluster_are_those_of_one_machine(cluster, tmp_path, launch):
    argv = ["--config=configs/quickstart.py:toy", "--config.collect.num_workers=0", "--config.collect.num_pairs=50"]
    argv += ["--stage=collect"]
    section = RayGames(address=cluster.address)
    clusters.run_all(plan("2", [], 0), [*argv, "--config.seeds=2"], tmp_path / "many", section)
    assert launch(*argv, "--config.seed=1", f"--workdir={tmp_path / 'one'}").returncode == 0
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one/dataset").rglob("*.npy")]
    assert files
    for file in files:
        assert (tmp_path / "many/seed-1" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()
    (tmp_path / "many/seed-2").mkdir()
    (tmp_path / "many/seed-2/dataset").write_text("")
    with pytest.raises(UserError, match=r"1 of 3 runs failed: seed-2 \(status 2, see .*log.txt"):
        clusters.run_all(plan("3", [], 0), argv, tmp_path / "many", section)
    assert "skipped" in (tmp_path / "many/seed-0/log.txt").read_text()


def test_a_cluster_that_cannot_be_joined_is_refused(monkeypatch):
    with pytest.raises(UserError, match=r"'127.0.0.1' does not answer on port 1: .*--config.ray_games.address"):
        clusters.check_reachable("127.0.0.1:1")
    refusal(lambda: clusters.check_reachable("somewhere"), "give host:port, not 'somewhere'")
    monkeypatch.setitem(sys.modules, "ray", None)
    refusal(lambda: clusters.connect("auto"), match=r"needs Ray: pip install 'motif_jax\[ray\]'")


@pytest.mark.parametrize(("values", "said"), [
    ({}, "need a cluster's address (--config.ray_games.address, --config.ray_games.hosts)"),
    ({"ray_games.address": "auto", "policy.synchronous": True}, "do not wait for games"),
    ({"ray_games.address": "auto", "policy.algorithm": "ppo"}, "do not wait for games"),
])  # fmt: skip
def test_runs_that_cannot_have_games_elsewhere_are_refused(values, said, tmp_path):
    config = get_config(argument="toy")
    config.update_from_flattened_dict({"policy.num_workers": 0, "ray_games.hosts": 2} | values)
    refusal(lambda: experiment.check(config.to_dict(), ["train_policy"], tmp_path), said, "--config.ray_games.")


def test_nothing_of_it_is_loaded_without_the_flag():
    code = "import sys, motif_jax.stages.train_policy.loop, motif_jax.stages.collect, motif_jax.launch\n"
    code += "own = 'motif_jax.contrib.ray_games'\n"
    code += "assert not {'ray', f'{own}.remote', f'{own}.cluster'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
