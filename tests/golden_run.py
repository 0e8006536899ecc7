"""The golden run: the same small experiments at two commits, and every array and figure that they make compared.

    python tests/golden_run.py             this working tree against the commit that it is based on (HEAD)
    python tests/golden_run.py REVISION    against any other commit
    python tests/golden_run.py REVISION --keep=DIRECTORY    and the workdirs stay there, to look into
    python tests/golden_run.py REVISION --only=drrn    only the experiments with "drrn" in their names

For whoever moves code: what is only moved gives the same bits. The older commit is checked out beside (`git worktree`)
and run with the same Python. Arrays must be equal to the bit, wherever in the workdir they lie. So must be the figures
in JSON files that both commits write, except those that tell of time and place. Status 1 if anything differs.

Not covered: judges that are language models; models that are read from files, with the families mistral, qwen2 and
qwen3, GGUF files and LoRA (the tests compare them with transformers); what is written by values of whole texts (rerank
by chai, utterance_ilql, utterance_awac) and for a wanted return; bfloat16; several workers, devices or hosts; the
stages audit, report, visualize and export, and what a GPU computes.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TRAINING = {
    "policy.num_workers": 1, "policy.synchronous": True, "policy.tensorboard": False, "policy.log_every_s": 1e-3,
    "policy.train_for_seconds": 0.0, "policy.save_every_s": 3600.0,  # so that a slow machine saves no more often
    "evaluate.num_workers": 0,
}  # fmt: skip
SMALL = TRAINING | {
    "policy.network": "small", "policy.games_per_worker": 8, "policy.groups": 2, "policy.rollout_length": 16,
    "policy.batch_size": 128, "policy.num_epochs": 2, "policy.num_minibatches": 2, "policy.warmup_steps": 20,
    "policy.train_for_env_steps": 1024, "policy.save_every_steps": 512, "policy.extrinsic_coefficient": 0.1,
    "evaluate.episodes": 6, "evaluate.games_per_worker": 3, "evaluate.greedy": True,
}  # fmt: skip
MOTIF = SMALL | {
    "collect.num_pairs": 300, "collect.num_workers": 1, "collect.keep_empty": 0.2,
    "reward.num_epochs": 2, "reward.batch_size": 64, "reward.message": "lt_cnn_small", "reward.learning_rate": 1e-3,
    "policy.intrinsic_coefficient": 0.1,
}  # fmt: skip
ONI = SMALL | {
    "env.max_episode_steps": 300, "annotate.backend": "lexicon", "policy.online.batch_size": 16,
    "policy.online.lessons_early": 2, "policy.online.audit_every_steps": 256,
}  # fmt: skip
TINY_MODEL = {"language.width": 8, "language.layers": 1, "language.heads": 2}
GLAM = TRAINING | TINY_MODEL | {
    "transcripts.import_from": "goto", "train_language.batch_size": 64, "train_language.num_parts": 1,
    "train_language.save_every_s": 3600.0,
    **{f"policy.{name}": value for name, value in TINY_MODEL.items()}, "policy.language.hidden": 8,
    "policy.games_per_worker": 4, "policy.rollout_length": 8, "policy.batch_size": 32, "policy.num_minibatches": 2,
    "policy.train_for_env_steps": 128, "evaluate.episodes": 4, "evaluate.games_per_worker": 2,
    "evaluate.variations": "rewording=synonyms",
}  # fmt: skip
UNREAD = {name: one for name, one in GLAM.items() if not name.startswith(("transcripts", "language", "train_language"))}
DRRN = UNREAD | {"policy.drrn.width": 8, "policy.replay.capacity": 64, "policy.replay.minibatch_size": 8}
GROUPS = SMALL | {
    "policy.algorithm": "gigpo", "env.max_episode_steps": 50, "policy.rollout_length": 50, "policy.warmup_steps": 0,
    "policy.batch_size": 400, "policy.grpo.group_size": 4, "policy.intrinsic_coefficient": 0.0,
    "policy.extrinsic_coefficient": 1.0,
}  # fmt: skip
VECTORS = ROOT / "tests/fixtures/tiny.vec"
ILQL = TINY_MODEL | {
    "cpu_devices": 1, "collect.transcripts": 600, "train_language.num_epochs": 1, "train_values.num_epochs": 1,
    "train_values.games": 8, "train_language.save_every_s": 3600.0, "train_values.save_every_s": 3600.0,
    "train_values.evaluate_every": 10, "decoding.betas": "0,4", "evaluate.episodes": 8,
}  # fmt: skip
PLAYED = {"train_values.games": 4, "train_values.rounds": 2, "train_values.batch_size": 8, "train_values.group_size": 4}
OFFLINE = ILQL | {"collect.transcripts": 100, "train_values.games": 0, "train_values.evaluate_every": 2}
RECIPES = {  # of offline learning beside ilql: the family of the model, and what else is set
    "bc": ("gpt2", {}), "filtered_bc": ("llama", {}), "utterance_ilql": ("gpt2", {}), "single_step": ("llama", {}),
    "cql": ("gpt2", {}), "psi": ("llama", {}), "awac": ("gpt2", {}), "utterance_awac": ("llama", {}),
    "monte_carlo": ("gpt2", {}), "decision_transformer": ("llama", {}), "chai": ("gpt2", {"train_values.replies": 2}),
    "grpo": ("llama", PLAYED), "gigpo": ("gpt2", PLAYED),
}  # fmt: skip
DECODINGS = OFFLINE | {
    "language.family": "llama", "decoding.kinds": "sample,greedy,beam,rerank", "decoding.temperature": 0.7,
    "decoding.top_k": 5, "decoding.top_p": 0.9, "decoding.clip": 1.0, "decoding.beams": 2, "decoding.candidates": 2,
    "evaluate.episodes": 4,
}  # fmt: skip
PLAYING = "train_policy,evaluate"
EARLIER = {  # before a config moved to contrib
    "drrn_quickstart:goto_small": "glam_quickstart.py:goto_small,drrn",
    "code_quickstart:gold": "code_quickstart.py:gold",
    "options:treasure": "options.py:treasure",
}
LEARNING = "collect,train_language,train_values"
OF_MOTIF = f"collect,annotate,train_reward,{PLAYING}"
EXPERIMENTS = {  # --config below configs/: what else is set, and the stages
    "quickstart.py:score": (MOTIF | {"env.max_episode_steps": 300}, OF_MOTIF),
    "quickstart.py:toy": (MOTIF | {"env.max_episode_steps": 50, "reward.blstats": False}, OF_MOTIF),
    "quickstart.py:staircase,reference": (
        MOTIF | {"env.max_episode_steps": 200, "policy.algorithm": "impala", "collect.num_pairs": 200}, OF_MOTIF,
    ),
    "oni_quickstart.py:reward_free,retrieval": (ONI, PLAYING),
    "oni_quickstart.py:score,classification": (ONI, PLAYING),
    "oni_quickstart.py:score,ranking,reference": (ONI, PLAYING),
    "glam_quickstart.py:goto_small": (GLAM, f"train_language,{PLAYING}"),
    "oni_quickstart.py:score,retrieval": (
        ONI | {"policy.online.kind": "words", "policy.online.vectors": str(VECTORS)}, PLAYING,
    ),
    "drrn_quickstart:goto_small": (DRRN, PLAYING),
    "motif.py:toy": (GROUPS, PLAYING),
    "options:treasure": (SMALL | {"policy.network": "general", "env.max_episode_steps": 40}, PLAYING),
    "code_quickstart:gold": (
        SMALL | {"env.max_episode_steps": 300, "write_reward.steps": 4_000, "write_reward.proposals": 3},
        f"write_reward,{PLAYING}",
    ),
    "ilql_quickstart.py:comments,ilql": ({"collect.transcripts": 50}, "collect"),
    "ilql_quickstart.py:dialogue,ilql": ({"collect.transcripts": 50}, "collect"),
    "ilql_quickstart.py:wordle,ilql": (ILQL, f"{LEARNING},evaluate"),
    "ilql_quickstart.py:wordle,ilql+joint": (DECODINGS, f"{LEARNING},evaluate"),
    **{
        f"ilql_quickstart.py:wordle,{recipe}": (OFFLINE | {"language.family": family} | more, LEARNING)
        for recipe, (family, more) in RECIPES.items()
    },
    "glam_quickstart.py:goto_small,unread": (
        UNREAD | {"policy.language.family": "t5", "evaluate.controls": "grounding", "evaluate.variations": ""}, PLAYING,
    ),
}  # fmt: skip
# Figures that are not the same twice: time, place, memory, and checksums of files that hold such figures.
VOLATILE = re.compile(
    r"seconds|_s$|_s_p\d+$|per_s|^time/|wait|machine|memory|mib|sha256|checksum|stamp|version|process|host|date|modified"
)


def main() -> int:
    """Runs, compares, tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--keep", type=Path, help="an empty directory for the workdirs")
    parser.add_argument("--only", default="", help="a part of the names of the experiments to run")
    options = parser.parse_args()
    if not any(options.only in name for name in EXPERIMENTS):
        parser.error(f"no experiment has {options.only!r} in its name")
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        with checked_out(options.revision, Path(temporary) / "tree") as tree:
            different = 0
            for name, (values, stages) in EXPERIMENTS.items():
                if options.only not in name:
                    continue
                workdirs = [place / f"{when}-{re.sub('[:,]', '-', name)}" for when in ("before", "after")]
                for source, workdir in zip((tree, ROOT), workdirs, strict=True):
                    run(source, name, values, stages, workdir, Path(temporary) / "compiled")
                different += compare(name, *map(read_workdir, workdirs))
    print("the same" if not different else f"{different} differences")
    return 1 if different else 0


@contextlib.contextmanager
def checked_out(revision: str, tree: Path) -> Iterator[Path]:
    """The files of a commit, for as long as they are needed."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def run(source: Path, name: str, values: dict[str, Any], stages: str, workdir: Path, compiled: Path) -> None:
    """Runs the stages, by the program that lies in `source`."""
    flags = [f"--config.{name}={value}" for name, value in values.items()]
    moved = name in EARLIER and any(source.glob(f"motif_jax/contrib/*/configs/{name.partition(':')[0]}.py"))
    config = name if moved else f"configs/{EARLIER.get(name, name)}"
    command = [sys.executable, "-m", "motif_jax.launch", f"--config={config}", *flags]
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_COMPILATION_CACHE_DIR": str(compiled)}
    print(workdir.name, flush=True)
    done = subprocess.run([*command, f"--workdir={workdir}", f"--stage={stages}"], cwd=source, env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        sys.exit(f"{source}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def read_workdir(workdir: Path) -> dict[str, str]:
    """Every array by a digest, every figure as text; by file and name."""
    from motif_jax.devices.checkpoints import reading
    from motif_jax.devices.parameters import leaves_by_path, sum_of_arrays

    found: dict[str, str] = {}
    for file in sorted(workdir.rglob("*")):
        name = str(file.relative_to(workdir))
        if file.name == "checkpoints" and file.is_dir():
            with reading(file) as checkpoints:
                for step in checkpoints.steps():
                    for path, array in leaves_by_path(checkpoints.readable(str(step))[1]).items():
                        found[f"{name}/{step}:{'.'.join(path)}"] = sum_of_arrays(array)
        elif {"checkpoints", "sections", "parts"} & {*file.parts} or file.suffix not in READERS:
            continue  # sections are words about the figures, with times
        else:
            found |= {f"{name}:{key}": value for key, value in READERS[file.suffix](file, str(workdir)).items()}
    return found


def read_array(file: Path, _: str) -> dict[str, str]:
    """An array, with its type and shape."""
    return {"": hashlib.sha256(file.read_bytes()).hexdigest()}


def read_archive(file: Path, workdir: str) -> dict[str, str]:
    """The arrays of an `.npz` file; and what a replay says `about` itself, which is JSON."""
    import numpy as np

    with np.load(file) as archive:
        found = {key: hashlib.sha256(archive[key].tobytes()).hexdigest() for key in archive if key != "about"}
        about = flatten(json.loads(archive["about"].tobytes()), ".about") if "about" in archive else ()
        return found | {key: value.replace(workdir, "WORKDIR") for key, value in about}


def read_figures(file: Path, workdir: str) -> dict[str, str]:
    """All that a JSON file, or each line of one, says."""
    texts = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    return {
        f"{number}{key}": value.replace(workdir, "WORKDIR")
        for number, text in enumerate(texts)
        for key, value in flatten(json.loads(text), "")
    }


def flatten(tree: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """{"a": {"b": 1}} -> (".a.b", "1")"""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if pairs is None:
        yield prefix, repr(tree)
        return
    for key, value in pairs:
        if not VOLATILE.search(str(key)):
            yield from flatten(value, f"{prefix}.{key}")


READERS = {".npy": read_array, ".npz": read_archive, ".json": read_figures, ".jsonl": read_figures}


def compare(name: str, before: dict[str, str], after: dict[str, str]) -> int:
    """How many things differ, each told in a line. What only one of both has is told, and counts if it is an array."""
    different = [key for key in before.keys() & after.keys() if before[key] != after[key]]
    for key in sorted(different):
        print(f"  {name}: {key} differs: {before[key][:60]} -> {after[key][:60]}")
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    values = {after[key] for key in new}
    is_array = [key for key in gone if Path(key.partition(":")[0]).suffix not in (".json", ".jsonl")]
    lost = [key for key in is_array if before[key] not in values]
    for key in lost:
        print(f"  {name}: {key} is lost")
    notes = {"arrays elsewhere now": len(is_array) - len(lost), "figures no more": len(gone) - len(is_array)}
    notes |= {"new arrays or figures": len(new)}
    print(
        f"  {name}: {len(before):,} compared", *(f"{count} {what}" for what, count in notes.items() if count), sep="; "
    )
    return len(different) + len(lost)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
