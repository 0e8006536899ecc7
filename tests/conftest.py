"""What several tests need."""

import collections
import contextlib
import fcntl
import functools
import json
import os
import random
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

with contextlib.suppress(ImportError):  # it is missing where only vLLM is tested
    import hypothesis

    # How long an example takes depends on the machine.
    hypothesis.settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("any machine")

ROOT = Path(__file__).parent.parent
LONG_S = 10_000.0  # for a deadline of the program that a test must not reach; pytest's own comes long before
Found = TypeVar("Found")

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs in the background with SIGINT ignored

# Workers import games by name ("faulty_games:Raising"); they inherit the path from here.
HERE = Path(__file__).parent
HELPERS = "actors annotation envs language learner networks stages replays transcripts offline policies rewards"
for helpers in (*map(HERE.joinpath, HELPERS.split()), *HERE.glob("contrib/*/")):
    sys.path.insert(0, str(helpers))


# What XLA compiles for one test serves the others, those in processes of their own included. What takes no time is kept
# as well: a training makes dozens of small programs when it starts, which take a second or two together. JAX reads this
# when it is imported, so it must be there before any test module is.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # the processes of pytest-xdist inherit that of the first
    COMPILED = tempfile.TemporaryDirectory(prefix="motif_jax-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
if "MADE_ONCE" not in os.environ:  # what one process of pytest-xdist has made for all of them
    MADE = tempfile.TemporaryDirectory(prefix="motif_jax-made-")
    os.environ["MADE_ONCE"] = MADE.name
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Most programs of the tests run a few times on small arrays, so compiling takes longer than running: it is done without
# optimisation, here and in the processes that tests start.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# XLA's older way to compile fused loops for CPUs takes a third of the time of the newer one. XLA aborts a process that
# sets a flag it does not know, as another version of it may not know this one: a process tries that once.
if "XLA_FLAGS" not in os.environ:
    quick = {"XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}
    attempt = [sys.executable, "-c", "from jaxlib import xla_client; xla_client.make_cpu_client()"]
    failed = subprocess.run(attempt, env=os.environ | quick, capture_output=True, check=False).returncode
    os.environ |= {"XLA_FLAGS": ""} if failed else quick  # the processes of pytest-xdist do not try again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with the files that have the most slow tests, so that no process is left with one of them at the end."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Prints the name of a test that fails at once, not only at the end, which a run that is cut off never reaches."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", flush=True)


@pytest.fixture
def launch() -> Callable[..., subprocess.CompletedProcess]:
    def run(*arguments: str, status: int | None = None) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "motif_jax.launch", *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert status in (None, done.returncode), done.stderr
        return done

    return run


@pytest.fixture
def launch_here(monkeypatch, capfd) -> Callable[..., subprocess.CompletedProcess]:
    """As `launch`, in this process: for command lines that are refused or that only tell."""
    from absl import flags

    from motif_jax import launch

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess:
        monkeypatch.setattr(launch, "FLAGS", flags.FlagValues())
        launch.define_flags(launch.FLAGS)
        command = ["motif_jax", *map(str, arguments)]
        done = subprocess.CompletedProcess(command, launch.main(command), *capfd.readouterr())
        assert done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def optimised():
    """Programs of a module are compiled with optimisation: for trainings that compute longer than they compile."""
    import jax  # most tests need none

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
        jax.config.update("jax_disable_most_optimizations", False)
        yield
    jax.config.update("jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1")
    jax.clear_caches()  # other processes, with which later tests compare, have programs without optimisation


@pytest.fixture
def short_pauses(monkeypatch):
    """Clients of servers try again soon after a failure, and streams of questions as well."""
    from motif_jax.annotation import stream  # not where only vLLM is tested
    from motif_jax.system import http

    for module in (http, stream):
        monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
        monkeypatch.setattr(module, "MAX_PAUSE_S", 0.05)


@pytest.fixture
def few_tries(monkeypatch, short_pauses):
    monkeypatch.setattr("motif_jax.system.http.TRIES", 2)


@pytest.fixture
def at_batch(monkeypatch) -> Callable[[int, Callable[[], None]], None]:
    """`at_batch(3, call)` calls once the policy has learnt from its third batch from now on, before that is counted."""
    from motif_jax.stages.train_policy.metrics import MetricsCollector

    coming: collections.deque[Callable[[], None]] = collections.deque()

    def batch(self, batch, real=MetricsCollector.batch):
        if coming:
            coming.popleft()()
        return real(self, batch)

    monkeypatch.setattr(MetricsCollector, "batch", batch)
    return lambda number, call: coming.extend([lambda: None] * (number - 1) + [call])


def write_programs(folder: Path, texts: dict[str, str]) -> None:
    """Scripts for bash that stand for programs, by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)


def last_checkpoint(workdir: Path, which: str = "last") -> tuple:
    """Step, arrays and metadata of a policy."""
    from motif_jax.devices.checkpoints import reading

    with reading(workdir / "policy/checkpoints") as checkpoints:
        return checkpoints.readable(which)


def on_devices(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Of a test: it runs in a process with this number of devices; its fixtures are paths and plain values."""

    def elsewhere(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: object) -> None:
            file = Path(test.__code__.co_filename)
            code = f"""
import sys; sys.path[:0] = ["tests", {str(file.parent)!r}]
import conftest, jax, {file.stem}
from pathlib import PosixPath
assert jax.device_count() == {number}
{file.stem}.{test.__name__}.__wrapped__(**{fixtures!r})
"""
            environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(number), "JAX_PLATFORMS": "cpu"}
            command, options = [sys.executable, "-c", code], {"capture_output": True, "text": True, "check": False}
            done = subprocess.run(command, cwd=ROOT, env=environment, **options)
            assert done.returncode == 0, done.stderr[-4000:]

        return run

    return elsewhere


def refusal(act: Callable[[], object], *parts: str, match: str = "", kind: type[Exception] | None = None) -> str:
    """The sentence that refuses something: one, fit for a terminal, with these parts. `kind`: other than UserError."""
    from motif_jax.structs import UserError

    kind = kind or UserError
    with pytest.raises(kind) as caught:
        act()
    said = getattr(caught.value, "sentence", str(caught.value))
    assert caught.type is kind, said
    assert said.isprintable(), said
    assert len(said) < 1000
    assert re.search(match, said), said
    assert not [part for part in parts if part not in said], said
    return said


def change_json(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def interrupt() -> None:
    raise KeyboardInterrupt


def wait_for(condition: Callable[[], Found]) -> Found:
    """Waits until a condition is true, and returns what it gave. Only pytest's own deadline ends this."""
    while not (found := condition()):
        time.sleep(0.01)
    return found


def get_config(file: str = "motif.py", argument: str = "score", **values: object):
    """A config of ours, with values such as `annotate__goal="gold"`."""
    from motif_jax.config.file import shipped

    config = runpy.run_path(str(shipped()[Path(file).stem]))["get_config"](argument)
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in values.items()})
    return config


def viewed(config, stage: str = "train_policy"):
    from motif_jax.stages import find_stage

    return find_stage(stage).view(config.to_dict())


def check_stage(stage, config, workdir: Path = Path("nowhere")) -> None:
    """The checks of a stage, a module of `motif_jax.stages`, that the command line begins with."""
    view = stage.STAGE.view(config.to_dict())
    for need in stage.STAGE.check(view, workdir):
        need.check()


def run_stage(stage, config, workdir: Path) -> None:
    check_stage(stage, config, workdir)
    stage.STAGE.run(stage.STAGE.view(config.to_dict()), workdir)


def is_complete(stage, config, workdir: Path) -> bool:
    return stage.STAGE.is_complete(stage.STAGE.view(config.to_dict()), workdir)


def assert_same_bits(one: object, other: object) -> None:
    import jax  # most tests need none
    import numpy as np

    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(functools.partial(np.testing.assert_array_equal, strict=True), one, other)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A directory that the first test in need of it makes, in whatever process; other tests read it, or copy it."""
    folder = Path(os.environ["MADE_ONCE"], name)
    complete = folder.with_suffix(".complete")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed to make it
            make(folder)
            complete.touch()
    return folder


def parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                found |= {} if state == "Z" else {int(entry.name): int(parent)}
    return found


def children() -> set[int]:
    return {process for process, parent in parents().items() if parent == os.getpid()}


def free_port() -> int:
    """One below those that the kernel gives to connections, so that nobody takes it before it is used."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def worker_processes(parent: int) -> set[int]:
    """Actor workers that were started by this process; also those that outlived it, which then have another parent."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"motif_jax.actors.worker" in command and b"/motif_jax-%d-" % parent in environment:
                found.add(int(entry.name))
    return found
