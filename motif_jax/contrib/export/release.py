"""Writes an export: a release of policy and reward with its card, transcripts, or the policy's language model."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import motif_jax
from motif_jax.config.renamed import current_values
from motif_jax.config.table import PATH, PATHS, SourcesText, flatten, keys, tables_of
from motif_jax.console import clean, print_line
from motif_jax.contrib.export.stage import FLAG, ExportConfig, check_output, output_of
from motif_jax.contrib.export.trl import write_trl
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.devices.releases import PREFIX, ZOO, find_checkpoints, write_release
from motif_jax.envs.protocols import TASK
from motif_jax.envs.worlds import title
from motif_jax.language.adapt import merge_low_rank
from motif_jax.language.config import find_trained
from motif_jax.language.hub import write_language_model
from motif_jax.names import BACKENDS, find
from motif_jax.networks.kinds import LANGUAGE, find_prompt_network, is_own
from motif_jax.pages.blocks import Interval, exact
from motif_jax.pages.figures import Meanings, Player, estimate, in_order, meanings_of, scores_of
from motif_jax.pages.players import read_players, read_results
from motif_jax.policies.choice import list_steps
from motif_jax.policies.decoding import TRAINED
from motif_jax.policies.model import read_policy
from motif_jax.rewards.learnt_source import load_reward, reward_checksum
from motif_jax.rewards.registry import LEARNT, without_folders
from motif_jax.rewards.source import RewardSources, trusted_classes
from motif_jax.stages.collect import CollectConfig
from motif_jax.stages.evaluate import file_of, read_json
from motif_jax.stages.train_policy import TrainConfig
from motif_jax.stages.train_reward import RewardConfig
from motif_jax.structs import UserError, naming
from motif_jax.tokens import tokeniser_from_text, write_tokeniser
from motif_jax.transcripts.store import Transcripts

DECLARED = tables_of(RewardConfig) | tables_of(CollectConfig) | tables_of(TrainConfig)  # for policies, rewards
Arrays = dict[tuple[str, ...], Any]
CHANCE = "random"
SEED = re.compile(r"seed-\d+")  # the folder of one of several runs
KEPT = ("episodes", "task", "rules", "figures", "greedy")  # of a summary

HUB = "reinforcement-learning"
PLACE = "DIRECTORY is the directory of this card."

Facts = Mapping[str, Any]


def run(config: ExportConfig, workdir: Path) -> None:
    """Writes transcripts, a language model, or a release."""
    form, kind = config.export.transcripts, config.export.language
    if form != "none":
        file = output_of(config.export, workdir)
        transcripts = Transcripts(Path(config.transcripts.path or workdir / "transcripts"))
        count = write_trl(transcripts, file, form, config.export.turns_mib)
        print_line(f"export: {count:,} lines of {len(transcripts):,} episodes in {file}")
        return
    directory = output_of(config.export, workdir)
    check_output(config.export, directory)
    if kind != "none":
        export_language(workdir, directory, kind)
        return
    name = (directory if config.export.to else workdir).resolve().name
    if directory.resolve().parent == ZOO.resolve():
        name = f"{PREFIX}/{name}"
    contents, arrays = find_contents(config, workdir)
    results, replay = {"seeds": 1, "evaluations": []}, None
    if "policy" in contents:
        results, replay = find_results(workdir, contents["policy"]["step"])
    metadata = {"name": name, "made_by": f"motif_jax {motif_jax.__version__}", "licence": config.export.licence}
    metadata |= contents | {"results": results}
    meanings = meanings_of(read_players(workdir).values())
    card = write_card(metadata, arrays, config.export.about, meanings)
    with naming(f"{FLAG}.to"):
        write_release(directory, arrays, metadata, card, replay)
    sizes = {file.name: file.stat().st_size for file in sorted(directory.iterdir()) if file.is_file()}
    print_line(f"export: {', '.join(f'{file} ({size / 1e6:,.1f} MB)' for file, size in sizes.items())}")
    for kind in contents:
        print_line(f"export: motif_jax.load_{kind}({arguments(metadata, kind, repr(str(directory)))})")


def export_language(workdir: Path, directory: Path, kind: str) -> None:
    """Writes the language model of the workdir's last policy, "merged" or as an "adapter", with its tokeniser."""
    _, steps = list_steps(str(workdir), "--workdir")
    model, metadata, _ = read_policy(workdir, str(steps[-1]))
    options = metadata["model"]
    network = find_prompt_network(options["network"])
    language: Any = network.language_model(options, model.params, model.frozen) if network else None
    if language is None:
        raise UserError(f"the policy in {str(workdir)!r} is not a language model ({FLAG}.language)")
    if kind == "merged":
        write_language_model(directory, merge_low_rank(language))
    else:
        base = metadata["config"]["policy"]["language"]["model"]
        trained = str(find_trained(workdir, f"{FLAG}.language").resolve()) if base == TRAINED else base
        from motif_jax.contrib.readers.peft import write_adapter

        write_adapter(directory, language, trained)
    write_tokeniser(directory, tokeniser_from_text(options[LANGUAGE]["tokeniser"]))
    print_line(f"export: the language model of step {steps[-1]:,}, {kind}, in {directory}")


# ---- what a release has


def find_contents(config: ExportConfig, workdir: Path) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """The last policy of a workdir and the reward that it was trained with; without one, the workdir's own reward.

    Returns the step of the policy's training, or the reward's epoch, and the facts of each; and their arrays by paths.
    """
    contents: dict[str, Any] = {}
    arrays: dict[str, Arrays] = {}
    kept: dict[str, Path] = {}
    for kind, place in (("reward", (workdir / "reward",)), ("policy", (workdir, "policy"))):
        with contextlib.suppress(UserError):  # each may be released alone
            kept[kind] = find_checkpoints(*place)
    reward = load_reward(kept["reward"], config.policy.reward_checkpoint) if "reward" in kept else None
    if "policy" in kept:
        _, steps = list_steps(str(workdir), "--workdir")
        model, metadata, sources = read_policy(workdir, str(steps[-1]), trusted_classes(config, config.policy.network))
        own_sources = RewardSources(one for one in sources if not one.source.is_learnt).arrays()
        parts = {"params": model.params, "frozen": model.frozen, "sources": own_sources}
        arrays["policy"] = {path: array for name, tree in parts.items() for path, array in _below(name, tree).items()}
        metadata = metadata | {"sources": sources.facts(), "config": deciding_values(metadata["config"])}
        if "reads" in metadata["model"]:  # JSON files have sorted keys
            metadata["model"] = metadata["model"] | {"order": list(model.reads)}
        contents["policy"] = {"step": steps[-1], "facts": metadata}
        if sources.learnt:
            learnt = sources.learnt.reward
            same = reward is not None and reward_checksum(reward) == reward_checksum(learnt)
            reward = reward if same else learnt
    if reward is not None:
        metadata = reward.facts | {"model": reward.options, "statistics": reward.statistics.record()}
        if "config" in metadata:
            metadata["config"] = deciding_values(metadata["config"])
        rest = {("captions",): reward.captions, ("counts",): reward.counts}
        arrays["reward"] = _below("params", reward.params) | rest
        contents["reward"] = {"step": int(metadata.get("epoch") or 0), "facts": metadata}
    if not contents:
        raise UserError(f"there is neither a policy nor a reward in {str(workdir)!r} to export (--workdir)")
    return contents, arrays


def _below(name: str, tree: Any) -> Arrays:
    return {(name, *path): array for path, array in leaves_by_path(tree).items()}


def deciding_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config that decide the result, nested; paths are cut to their last part, for privacy."""
    flat, nested = current_values(flatten(config)), dict[str, Any]()
    for key, value in keys(DECLARED).items():
        if not value.decides or key not in flat:
            continue
        *sections, name = key.split(".")
        inner = functools.reduce(lambda inner, section: inner.setdefault(section, {}), sections, nested)
        text = flat[key]
        text = without_folders(text) if isinstance(value.kind, SourcesText) else text
        is_path = value.kind in (PATH, PATHS) or (isinstance(text, str) and text.startswith("/"))
        inner[name] = ",".join(Path(part).name for part in text.split(",")) if is_path else text
    return nested


def find_results(workdir: Path, step: int) -> tuple[dict[str, Any], bytes | None]:
    """Figures of the training up to this step, of each evaluation of the policy, and the replay of its best episode.

    {"training": {"env_steps", "seconds"}, "seeds": 1, "evaluations": [{"episodes", "figures", "random", ...}]}: first
    those by the task's rules, and not greedy; compared with random play. The replay is None if it was not kept.
    """
    results: dict[str, Any] = {"seeds": 1, "evaluations": []}
    training = read_json(workdir / "policy" / "summary.json") or {}
    if training.get("env_steps") == step:
        names = ("env_steps", "seconds", "machine")
        results["training"] = {name: training[name] for name in names if name in training}
    every, replay = read_results(workdir), None
    mine = {name: one for name, one in every.items() if one["path"] == "." and not one.get("variant")}
    own = {name: one for name, one in mine.items() if one["step"] == step}
    for name in sorted(own, key=lambda name: ("protocol" in own[name], own[name]["greedy"], name)):
        summary, protocol = own[name], own[name].get("protocol")
        beside = every.get(f"{CHANCE}-{protocol}" if protocol else CHANCE, {})
        same = all(beside.get(name) == summary[name] for name in ("episodes", "task"))
        kept = {name: summary[name] for name in KEPT} | {"protocol": protocol or TASK}
        results["evaluations"].append(kept | {CHANCE: beside["figures"] if same else None})
        best = summary["replays"].get("best")
        if replay is None and best is not None and (file := file_of(workdir / "evaluate" / name, best)).is_file():
            replay = file.read_bytes()
    return results | find_over_seeds(workdir), replay


def find_over_seeds(workdir: Path) -> dict[str, Any]:
    """Figures over this run and those with other seeds beside it (`--config.seeds`); {} for a single run.

    {"seeds": N, "trained_steps": [fewest, most], "over_seeds": {figure: {"mean", "low", "high"}}}: the steps of the
    latest evaluated policies; the mean of the seeds' means, with its interval.
    """
    if not SEED.fullmatch(workdir.resolve().name):
        return {}
    latest: list[Player] = []
    for run in sorted(path for path in workdir.resolve().parent.iterdir() if SEED.fullmatch(path.name)):
        every = read_players(run).values()
        own = [one for one in every if one.path == "." and not (one.protocol or one.variant or one.greedy)]
        latest += [max(own, key=lambda one: one.step)] if own else []
    if len(latest) < 2:
        return {}
    steps = [player.step for player in latest]
    estimates = {figure: estimate(values) for figure, values in scores_of(latest).items()}
    over_seeds = {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in estimates.items()}
    return {"seeds": len(latest), "trained_steps": [min(steps), max(steps)], "over_seeds": over_seeds}


# ---- the card: README.md with the YAML front matter of the Hugging Face Hub


def write_card(metadata: Facts, arrays: Mapping[str, Mapping[Any, Any]], words: str, meanings: Meanings) -> str:
    """The text of the card. `metadata`: of config.json. `words`: sentences of the user's own.

    `meanings`: of the figures.
    """
    name, results = metadata["name"], metadata["results"]
    parts = [_front_matter(metadata), f"# {clean(name)}", *([clean(words, 2000)] if words else []), _use(metadata)]
    parts += ["## How it was made", _table(("", ""), _made(metadata, arrays))]
    for evaluation in results["evaluations"]:
        rules, greedy = evaluation["rules"] or evaluation["task"], ", greedy" if evaluation["greedy"] else ""
        heading = f"## How good it is: {evaluation['episodes']:,} games, {rules}{greedy}"
        beside, own = evaluation[CHANCE], evaluation["figures"]
        head = ["per game", "mean [95 % interval]", "median", *(["random play", "median"] if beside else [])]
        rows = [
            [figure, *_cells(own[figure]), *(_cells(beside.get(figure)) if beside else [])]
            for figure in in_order(own, meanings)
            if own[figure]
        ]
        parts += [heading, _table(head, rows)]
    if over_seeds := results.get("over_seeds"):
        steps = " to ".join(f"{step:,}" for step in sorted(set(results["trained_steps"])))
        known = [figure for figure in in_order(over_seeds, meanings) if over_seeds[figure]]
        rows = [[figure, _cells(over_seeds[figure])[0]] for figure in known]
        parts += [f"## Over {results['seeds']} seeds", f"The policies were trained for {steps} steps."]
        parts.append(_table(["mean of the seeds' means", "[95 % interval over seeds]"], rows))
    elif results["evaluations"]:
        parts.append("This is one run. Other seeds give other agents, so it does not support claims about learning.")
    parts += ["## Licence", clean(metadata["licence"]) if metadata["licence"] else "Not stated."]
    return "\n\n".join(parts) + "\n"


def _front_matter(metadata: Facts) -> str:
    """The metadata for the Hub; every value is written as JSON, which YAML includes."""
    env = _env(metadata)
    matter: dict[str, Any] = {"license": metadata["licence"]} if metadata["licence"] else {}
    tags = [HUB, *({env.get("world", "nethack"): 0, title(env): 0} if env else {})]
    matter |= {"library_name": "motif_jax", "pipeline_tag": HUB, "tags": tags}
    metrics = [
        {"type": f"mean_{figure}", "name": f"mean {figure}", "value": round(interval["mean"], 4), "verified": False}
        for evaluation in metadata["results"]["evaluations"][:1]
        if not (evaluation["rules"] or evaluation["greedy"])
        for figure, interval in evaluation["figures"].items()
        if interval
    ]
    if metrics:
        dataset = {"name": title(env), "type": title(env)}
        result = {"task": {"type": HUB, "name": HUB}, "dataset": dataset, "metrics": metrics}
        matter["model-index"] = [{"name": metadata["name"], "results": [result]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in matter.items()), "---"])


def _use(metadata: Facts) -> str:
    kinds = [kind for kind in ("policy", "reward") if kind in metadata]
    what = {"policy": "A policy that plays", "reward": "a learnt reward"}
    title = " and ".join(what[kind] for kind in kinds)
    own = metadata["name"].startswith(f"{PREFIX}/")
    where, note = (json.dumps(metadata["name"]), "It comes with the program.") if own else ("DIRECTORY", PLACE)
    lines = [f"{kind} = motif_jax.load_{kind}({arguments(metadata, kind, where)})" for kind in kinds]
    code = "\n".join(["```python", "import motif_jax", "", *lines, "```"])
    return f"{title[0].upper()}{title[1:]}, from motif_jax. {note}\n\n{code}"


def arguments(metadata: Facts, kind: str, where: str) -> str:
    """The arguments of `motif_jax.load_policy` or `load_reward` for a release in the directory `where`, as code."""
    network = metadata[kind]["facts"]["model"].get("network", "")
    return f"{where}, trusted={json.dumps([network])}" if kind == "policy" and is_own(network) else where


def _env(metadata: Facts) -> Facts:
    """The section `env` of the config that the policy, or else the reward, was trained with."""
    kinds = [kind for kind in ("policy", "reward") if kind in metadata]
    return next(filter(None, (metadata[kind]["facts"].get("config", {}).get("env") for kind in kinds)), {})


def judge_of(asked: Facts) -> str:
    """The judge of a record of the section `annotate`; classes of users, which others may have named, stay out."""
    known = find(BACKENDS, asked.get("backend", ""))
    return str(asked.get("model") or (known and known.title) or asked.get("backend"))


def _made(metadata: Facts, arrays: Mapping[str, Mapping[Any, Any]]) -> list[tuple[str, str]]:
    """Rows on training and reward; unknown values are left out."""
    rows: list[tuple[str, Any]] = []
    env = _env(metadata)
    if env:
        steps = f"episodes of at most {env['max_episode_steps']:,} steps"
        rows.append(("game", ", ".join({env.get("world", "nethack"): 0, title(env): 0, steps: 0})))
    if "policy" in metadata:
        own, training = metadata["policy"]["facts"], metadata["results"].get("training", {})
        model, settings = own["model"], own["config"].get("policy", {})
        rows.append(("policy", f"network {model['network']}, {_count(arrays['policy'])} parameters in float32"))
        seconds = f" in {training['seconds']:,.0f} s" if "seconds" in training else ""
        machine = training.get("machine", {})
        where = f" on {machine['cores']} cores of {machine['processor']}" if "processor" in machine else ""
        steps = f"{metadata['policy']['step']:,} steps{seconds}{where}, {settings.get('algorithm', '')}"
        words = {LEARNT: "the learnt reward"}
        weights = {"the game": settings.get("extrinsic_coefficient", 0.0)}
        weights |= {name: source["coefficient"] for name, source in own["sources"].items()}
        rewarded = ", ".join(f"{words.get(name, name)} x {weight:g}" for name, weight in weights.items() if weight)
        rows += [("training", steps), ("rewarded by", rewarded), ("seed", own["config"].get("seed"))]
    if "reward" in metadata:
        own = metadata["reward"]["facts"]
        config, history = own.get("config", {}), own.get("history") or [{}]
        rows.append(("reward", f"{_count(arrays['reward'])} parameters in float32, epoch {metadata['reward']['step']}"))
        if asked := config.get("annotate"):
            rows.append(("preferences of", f"{judge_of(asked)}, goal: {asked.get('goal')}"))
        if "pairs" in own:
            rows.append(("learnt from", f"{own['pairs']:,} pairs of moments"))
        if (accuracy := history[-1].get("accuracy")) is not None:
            rows.append(("agrees with", f"{accuracy:.1%} of the preferences that were set aside"))
    rows.append(("made by", metadata["made_by"]))
    return [(name, clean(value)) for name, value in rows if value not in (None, "")]


def _count(arrays: Mapping[Any, Any]) -> str:
    return f"{sum(np.size(array) for path, array in arrays.items() if path[0] in ('params', 'frozen')):,}"


def _cells(interval: Facts | None) -> list[str]:
    """The mean of a figure with its 95 % interval, and its median."""
    if not interval:
        return ["", ""]
    one = Interval(interval["mean"], interval.get("low"), interval.get("high"), interval.get("median"))
    return [one.spelt, "" if one.median is None else exact(one.median)]


def _table(head: Any, rows: Any) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
