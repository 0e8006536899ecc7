"""Trains the reward on the labels; its checkpoints can be used without the dataset. Writes a page about it.

Before every epoch, and after the last, the network computes the reward of each distinct caption once. The validation,
and the statistics that normalise the agent's reward, use these values. A checkpoint holds the network, the optimiser,
the statistics and the captions; training that resumes from it has bitwise equal results.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from motif_jax.annotation.backends import find_backend
from motif_jax.captions import WIDTH, CaptionTable, decode
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.devices.mesh import make_mesh, replicate
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.envs.texts import texts_of
from motif_jax.files import checkpoint_steps, make_anew, read_json, to_plain, write_whole
from motif_jax.networks.reward import inputs_beside, observations_beside
from motif_jax.pages.blocks import Block, Box, Heading, Link, Paragraph, Span, Table, Text, Tiles, noted, page, quoted
from motif_jax.pages.charts import Columns, Curves
from motif_jax.preferences.questions import NEUTRAL, neutral_pairs
from motif_jax.preferences.shards import ROUNDING, count, mix, soft_target, to_codes
from motif_jax.preferences.store import PairDataset, annotation_folder
from motif_jax.rewards import preference, statistics
from motif_jax.rewards.statistics import IMPORT_FLAG, RewardStatistics, compare, find_reward_file
from motif_jax.run import Facts, Judge, Run, StageRun, date_of
from motif_jax.stages.annotate import label_name, open_dataset
from motif_jax.stages.annotate.page import TITLE as PREFERENCES
from motif_jax.stages.annotate.page import aim_of, label_bar, sentence, together
from motif_jax.stages.train_reward import FLAG as ANNOTATORS
from motif_jax.stages.train_reward import FOLDER, SUMMARY, RewardConfig, TrainReward, label_checksums, learnt_from
from motif_jax.structs import Interrupted, UserError
from motif_jax.system.machine import describe
from motif_jax.system.metrics import Progress
from motif_jax.system.startup import say

STAGE = "train_reward"
KEEP = 2  # checkpoints besides the best
PAIRS = 1024  # per call of models that read more than the message
STEPS = 32  # batches on the device at a time, for these models
SHOWN = 25  # captions at either end
IN_REPORT, LIKED = 12, 6  # the same in the report, and in its table of several runs
TITLE = "The reward"  # of the report's part
THRESHOLDS = (0.5, 0.65, 0.8)  # quantile levels; rewards below one of them may be set to 0 for the agent
REMEDY = (
    f"remove '{FOLDER}' of the workdir, or choose another one (--workdir), and try a smaller "
    "--config.reward.learning_rate"
)
USUAL = 0.5  # the level that is used by default (--config.policy.threshold_quantile)


def train(config: RewardConfig, workdir: Path) -> None:
    """Trains the reward in `workdir/reward`, or resumes an earlier run there; or imports one."""
    with Run(workdir).stage(STAGE, FOLDER) as stage:
        if config.reward.import_from:
            import_reward(config, stage)
            return
        try:
            fit(config, stage)
        except Interrupted:
            if saved := checkpoint_steps(stage.path / "checkpoints"):
                say(f"the reward is saved at the end of each epoch: progress since epoch {saved[-1]} is lost")
            raise


def fit(config: RewardConfig, stage: StageRun) -> None:
    """Trains until the last epoch, and writes the results."""
    section = config.reward
    data = load_data(config, stage.workdir)
    worth = worth_of_captions(config, data)
    mesh = make_mesh()
    if section.batch_size % mesh.size:
        devices = f"{mesh.size} devices (--config.reward.batch_size)"
        raise UserError(f"batch_size {section.batch_size} cannot be split among {devices}")
    model = preference.make_model(section.network, section.learning_rate, data.table.messages, mesh)
    with stage.checkpoints(KEEP) as checkpoints:
        assert checkpoints
        state, metadata = start_or_resume(model, data, config.seed, checkpoints)
        first, items, history = metadata["epoch"], metadata["items"], metadata["history"]
        stage.bind(config)
        print_line(f"{STAGE}: compiling the first update")
        progress, started = Progress(STAGE, section.num_epochs, "epochs", first), time.monotonic()
        start = first if history else -1
        with stage.metrics("epoch", start, section.tensorboard, section.wandb, config, "reward") as metrics:
            assert metrics
            for epoch in range(first, max(first, section.num_epochs) + 1):
                if epoch > first:
                    state, items = learn_epoch(model, state, data, config, epoch - 1, items)
                    progress.update(
                        epoch, loss=f"{history[-1]['loss']:.4f}", agreement=percent(history[-1]["accuracy"])
                    )
                values, rewards = value_pairs(model, state.params, data)
                if not np.isfinite(rewards).all():
                    raise UserError(f"the rewards are not finite after epoch {epoch}; {REMEDY}")
                if epoch == start:  # the checkpoint's epoch is measured
                    continue
                row = measure(rewards, data, jax.device_get(state.sums)) | {"epoch": epoch}
                history.append(row | {"seconds": round(time.monotonic() - started, 2)})
                metrics.write(epoch, history[-1])
                seen = rewards[data.split.train].reshape(-1)
                raw, counts = (seen, np.ones(len(seen))) if values is None else (values, data.counts)
                decimals = 2 if section.reference_quantiles else None  # as in the published system
                anchor = neutral_reward(rewards, data) if section.is_anchored else None
                metadata = {
                    "epoch": epoch, "items": items, "history": history, "model": section.network,
                    "statistics": statistics.summarise_values(raw, counts, decimals, anchor).record(),
                    "parameters": sum(array.size for array in jax.tree.leaves(state.params)),
                    "annotators": data.weights, "labels": data.checksums, "pairs": len(data.dataset),
                    "config": to_plain(config),
                }  # fmt: skip
                kept = {"captions": data.table.messages, "counts": data.counts.astype(np.int32)}
                checkpoints.save(epoch, {"train": state, **kept}, metadata, row["loss"])
        progress.close()
    finish(config, stage, data, metadata, values, rewards, worth)


# ---- data


class LabelledPairs(NamedTuple):
    """The N pairs of a dataset, their captions and their labels; in training also pairs with the neutral moment."""

    dataset: PairDataset
    extra: preference.Extra | None  # inputs of the model beside the message; None if it reads only messages
    table: CaptionTable
    ids: np.ndarray  # [N, 2, L]; rows from `len(dataset)` on are pairs with the neutral moment
    target: np.ndarray  # [N]: P(second is better), NaN where unknown
    targets: dict[str, np.ndarray]  # the same by annotation
    hard: dict[str, np.ndarray]  # the same, of the hard labels
    sided: np.ndarray  # [N] bool: whether the hard labels have a preference
    weights: dict[str, float]
    checksums: dict[str, str]  # of the dataset and the labels
    split: preference.Split
    trained: np.ndarray  # numbers of the rows to train on: those of the split, and pairs with the neutral moment
    counts: np.ndarray  # how often the split for training shows each caption. [U]


def load_data(config: RewardConfig, workdir: Path) -> LabelledPairs:
    """The dataset of the workdir with the labels that the config names, and its split."""
    section, dataset = config.reward, open_dataset(workdir)
    weights, checksums = learnt_from(config), label_checksums(dataset, config)
    folders = {name: annotation_folder(dataset.path, name) for name in weights}
    targets, hard = {}, {}
    for name, folder in folders.items():
        codes, record = dataset.preference(name), folder / "merged.json"  # labels published by others have none
        if record.exists() and read_json(record)["facts"]["dataset"] != checksums["dataset"]:
            raise UserError(f"annotation {name!r} was made for another dataset ({ANNOTATORS})")
        soft = section.is_soft and (folder / "prob.npy").exists()
        targets[name] = soft_target(codes, np.load(folder / "prob.npy") if soft else None)  # [N]
        hard[name] = soft_target(codes, None)
    target, sided = mix(targets, weights), mix(hard, weights) != 0.5
    check_targets(target, ", ".join(weights))
    split = preference.split_rows(np.flatnonzero(~np.isnan(target)), section.validation_share, config.seed)
    if not len(split.train) or not len(split.validation):
        few = f"{len(split.train) + len(split.validation)} labelled pairs are too few to train and to validate"
        raise UserError(f"{few} (--config.annotate.max_pairs, --config.reward.validation_share)")
    table, caption_ids = dataset.captions()
    ids = np.asarray(caption_ids)
    counts = np.bincount(ids[split.train].reshape(-1), minlength=len(table))
    if section.is_anchored and section.reads_only_messages and len(weights) == 1:
        (folder,) = folders.values()
        neutral_ids, prob = neutral_pairs(folder, table, ids)
        if len(prob) and not section.is_soft:
            margin = read_json(folder / "merged.json")["facts"].get("tie_margin", 0.0)
            prob = soft_target(to_codes(prob, margin), None)
        ids, target = np.concatenate([ids, neutral_ids]), np.concatenate([target, prob])
        sided = np.concatenate([sided, np.abs(prob - 0.5) > ROUNDING])
    elif section.is_anchored and any((one / NEUTRAL).exists() for one in folders.values()):
        print_line(
            f"{STAGE}: the answers about a moment without a message are not used: they need one annotation, and a "
            "reward that reads messages alone (--config.reward.annotators, .blstats, .crop, .glyphs)"
        )
    trained = np.concatenate([split.train, np.arange(len(dataset), len(target))])
    needed = observations_beside(section.network)
    if missing := [key for key in needed if key not in dataset.data]:
        what = f"dataset {str(dataset.path)!r} has no data/{missing[0]}.npy, which this reward reads"
        raise UserError(f"{what} (for glyphs --config.collect.save_glyphs; --config.reward.blstats, .crop, .glyphs)")

    def extra(rows: np.ndarray) -> dict[str, np.ndarray]:
        return inputs_beside(section.network, {key: dataset.data[key][rows] for key in needed})

    return LabelledPairs(
        dataset, extra if needed else None, table, ids, target, targets, hard, sided, weights, checksums, split,
        trained, counts,
    )  # fmt: skip


def check_targets(target: np.ndarray, names: str) -> None:
    """Raises UserError if nothing can be learnt from the labels: all unknown, all ties, or all for one side."""
    first, ties, second = (target < 0.5).sum(), (target == 0.5).sum(), (target > 0.5).sum()
    if not first or not second:
        counts = f"{first:,} labels for the first moment, {second:,} for the second and {ties:,} ties"
        what = f"there is nothing to learn in annotation {names!r}: it has {counts}"
        raise UserError(f"{what}; label more pairs with --stage=annotate ({ANNOTATORS})")


def worth_of_captions(config: RewardConfig, data: LabelledPairs) -> np.ndarray | None:
    """The worth of every caption by the rules; None unless they gave the labels, and still have this version. [U]"""
    section, name = config.annotate, label_name(config.annotate)
    record = annotation_folder(data.dataset.path, name) / "merged.json"
    if not find_backend(section).by_rules or [*data.weights] != [name] or not record.exists():
        return None
    metadata, rules = read_json(record)["facts"], texts_of(config.env, section.lexicon).rules()
    if (metadata.get("rules"), metadata.get("goal")) != (rules.version, section.goal):
        return None
    worth = rules.worth_to(section.goal)
    return np.array([worth(decode(message))[0] for message in data.table.messages])


# ---- training


def start_or_resume(
    model: preference.Model, data: LabelledPairs, seed: int, checkpoints: Checkpoints
) -> tuple[preference.TrainState, dict[str, Any]]:
    """The state and the metadata of the last checkpoint, or new ones.

    `items`: captions per batch, also of later batches, for equal sums and without recompilation. `history`: metrics.
    """
    state = model.init(seed)
    if (latest := checkpoints.latest()) is None:
        return state, {"epoch": 0, "items": 0, "history": []}
    epoch, arrays, metadata = latest
    if metadata["labels"] != data.checksums:
        folder = str(checkpoints.directory.parent)
        raise UserError(f"{folder!r} was trained on other labels: choose another --workdir, or remove it")
    state = rebuild(state, leaves_by_path(arrays["train"]), checkpoints.directory, "--workdir")
    print_line(f"{STAGE}: going on after epoch {epoch}")
    return replicate(state, model.mesh), metadata


def learn_epoch(
    model: preference.Model, state: preference.TrainState, data: LabelledPairs, config: RewardConfig, epoch: int,
    items: int,
) -> tuple[preference.TrainState, int]:  # fmt: skip
    """Trains for one epoch, also returns the new `items`; raises UserError if the loss was not finite."""
    state = state._replace(sums=replicate(preference.zero_sums(), model.mesh))
    order, batch_size = preference.epoch_order(data.trained, config.seed, epoch), config.reward.batch_size
    stretch = STEPS * batch_size if data.extra else len(order)  # observations beside messages are large
    for start in range(0, len(order), stretch):
        batches = preference.make_batches(
            order[start : start + stretch], data.ids, data.target, batch_size, model.mesh.size, data.extra, items,
            data.sided,
        )  # fmt: skip
        items = batches.captions.shape[-1]
        state = model.learn(state, batches)
        if broken := int(state.sums.broken):
            step = start // batch_size + broken - 1
            raise UserError(f"the loss is not finite, first at step {step} of epoch {epoch}; {REMEDY}")
    return state, items


# ---- figures


def value_pairs(model: preference.Model, params: Any, data: LabelledPairs) -> tuple[np.ndarray | None, np.ndarray]:
    """The raw rewards of all captions [U], None if the model reads more than the message; of all steps [N, 2, L]."""
    if not (extra := data.extra):
        values = preference.value_captions(model.value, params, model.table)
        return values, values[data.ids]

    def value(rows: np.ndarray) -> np.ndarray:
        flat = {name: array.reshape(-1, *array.shape[3:]) for name, array in extra(rows).items()}
        ids = data.ids[rows]
        return np.asarray(model.value(params, model.table, ids.reshape(-1), flat)).reshape(ids.shape)

    return None, preference.in_equal_chunks(value, len(data.ids), max(1, PAIRS // data.ids.shape[2]))


def neutral_reward(rewards: np.ndarray, data: LabelledPairs) -> float | None:
    """The mean raw reward of the training steps without a message; None without such steps. `rewards`: [N, 2, L]"""
    silent = np.asarray(~data.table.messages.any(1))[data.ids[data.trained]]
    return float(rewards[data.trained][silent].mean(dtype=np.float64)) if silent.any() else None


def measure(rewards: np.ndarray, data: LabelledPairs, sums: preference.Sums) -> dict[str, Any]:
    """Metrics on the validation pairs: loss, and how often the reward agrees with the annotators and with the score.

    `rewards`: of every step. [N, 2, L] `sums`: of the epoch's training, if there was one.
    """
    rows = data.split.validation
    moments, target, sided, ids = rewards[rows].mean(-1), data.target[rows], data.sided[rows], data.ids[rows]
    row: dict[str, Any] = compare(moments, target, sided)
    if row["sided"]:
        row["questions"], trials = statistics.independent_questions(ids[sided])
        row["accuracy_low"], row["accuracy_high"] = statistics.share_interval(row["accuracy"], trials)
    unseen = (data.counts[ids] == 0).any((1, 2))
    row |= {f"unseen_{name}": value for name, value in compare(moments[unseen], target[unseen], sided[unseen]).items()}
    if "score" in data.dataset.info:
        first, second = data.dataset.info["score"][rows].T
        row["score_accuracy"] = compare(moments, np.where(first == second, 0.5, second > first))["accuracy"]
    if len(data.targets) > 1:
        for name, one in data.targets.items():
            row[f"accuracy.{name}"] = compare(moments, one[rows], data.hard[name][rows] != 0.5)["accuracy"]
    if sums.pairs:
        row["train_loss"] = float(sums.loss / sums.pairs)
        row["train_accuracy"] = float(sums.right / sums.sided) if sums.sided else float("nan")
    return row


# ---- results


def finish(
    config: RewardConfig, stage: StageRun, data: LabelledPairs, metadata: dict[str, Any], values: np.ndarray | None,
    rewards: np.ndarray, worth: np.ndarray | None,
) -> None:  # fmt: skip
    """Writes the page, the report's part and the summary; prints the results."""
    history = metadata["history"]
    last = history[-1]
    summary = metadata | {
        "best_epoch": min(history, key=lambda row: (row["loss"], -row["epoch"]))["epoch"],
        "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    }
    neutral = neutral_reward(rewards, data)
    if values is not None and worth is not None:
        held_out = np.zeros(len(values), bool)
        held_out[data.ids[data.split.validation]] = True
        summary["worth"] = statistics.compare_with_worth(values, worth, data.counts, held_out, neutral)
    path = write_page(stage, summary, data, values, rewards)
    stage.write(SUMMARY, summary)  # last: the stage is complete
    unseen = f"; {last['unseen_accuracy']:.1%} on {last['unseen_sided']:,} with a caption that training never saw"
    print_line(
        f"{STAGE}: epoch {metadata['epoch']}: validation loss {last['loss']:.4f}, agreement with its own labels "
        f"{percent(last['accuracy'])} on {evidence(last)}{unseen if last['unseen_sided'] else ''}; "
        f"{len(data.split.train):,} training pairs in {last['seconds']:.1f} s"
    )
    about_worth = faithfulness(summary["worth"]) if "worth" in summary else ""
    for words in filter(None, [about_worth, *remarks(config.reward, data, neutral)]):
        print_line(f"{STAGE}: {words}")
    print_line(f"{STAGE}: checkpoints in {stage.path / 'checkpoints'}, page: {path}")


def remarks(section: TrainReward, data: LabelledPairs, neutral: float | None) -> Iterator[str]:
    """Warnings and advice about the labels; `neutral`: see `neutral_reward`."""
    if section.is_soft and np.isin(data.target[~np.isnan(data.target)], (0.0, 0.5, 1.0)).all():
        yield (
            f"the labels of {', '.join(map(repr, data.weights))} are verdicts without degrees, so a small difference "
            "may be rewarded like a large one: rules give degrees if they label again "
            "(--config.annotate.ignore_existing=True), language models with --config.annotate.mode=score"
        )
    if section.is_anchored and neutral is None:
        yield (
            "all captions of the training pairs have a message, so no moment is neutral and the reward has no anchor: "
            "its mean is 0 (--config.reward.anchor)"
        )
    has_label, sided = (array[: len(data.dataset)] for array in (~np.isnan(data.target), data.sided))
    ties = 1 - sided[has_label].mean()
    if ties > 0.5:
        yield (
            f"{ties:.0%} of the labelled pairs are ties: if most of these have a moment without a message, a smaller "
            "--config.collect.keep_empty keeps fewer such moments, in another --workdir; "
            "otherwise try a smaller --config.annotate.tie_margin"
        )


# ---- the reward of another program


def import_reward(config: RewardConfig, stage: StageRun) -> None:
    """Makes a reward of this workdir from a file in another format, with its statistics."""
    file = Path(config.reward.import_from)
    reward = find_reward_file(file).read()
    if reward.doubt:
        print_line(f"{STAGE}: {reward.doubt}")
    _, like = preference.make_reward_model(reward.network, 0)
    params = rebuild(like, reward.params, file, IMPORT_FLAG)
    state = preference.TrainState(params, optax.adam(config.reward.learning_rate).init(params), preference.zero_sums())
    metadata: dict[str, Any] = {
        "epoch": reward.epoch, "model": dict(reward.network), "history": [], "annotators": {}, "labels": {},
        "statistics": reward.statistics.record(), "imported_from": str(file.resolve()),
    }  # fmt: skip
    make_anew(stage.path / "checkpoints")  # replaces those of a killed import
    stage.bind(config)
    with stage.checkpoints(KEEP) as checkpoints:
        assert checkpoints
        nothing = {"captions": np.zeros((1, WIDTH), np.uint8), "counts": np.zeros(1, np.int32)}
        checkpoints.save(reward.epoch, {"train": state, **nothing}, metadata, 0.0)
    stage.section(TITLE, Paragraph(f"imported · epoch {reward.epoch}", "soft"))
    title = "A reward for moments of a game"
    stage.report(Facts(title=title, agreement=percent(None), made=date_of(time.time())))
    stage.write(SUMMARY, metadata | {"best_epoch": reward.epoch})
    print_line(f"{STAGE}: imported {str(file)!r} with its mean, variance and quantiles")


# ---- the page, and the part of the report


def write_page(
    stage: StageRun, summary: Mapping[str, Any], data: LabelledPairs, values: np.ndarray | None, rewards: np.ndarray
) -> Path:
    """Writes `reward/reward.html`, and the part of the report: accuracy, loss, spread, best and worst captions.

    `summary`: the content of statistics.json. `values`, `rewards`: see `value_pairs`.
    """
    weights, last = summary["annotators"], summary["history"][-1]
    names, size, epoch = ", ".join(weights), f"{summary['parameters']:,} parameters", f"epoch {summary['epoch']}"
    learning, likes = _learning(summary["history"]), None
    origin = Paragraph(f"learnt from {names} · {size} · {epoch}", "soft")
    body: list[Block] = [Heading("The reward", 1), origin, *learning]
    about = f"from {names} · {epoch} · {size} · ", Link("details", "../reward/reward.html")
    part: list[Block] = [Paragraph(about, "soft"), *learning]
    body += _worth(summary["worth"]) if "worth" in summary else []
    if len(weights) > 1:
        rows = [[name, f"{weight:.0%}", percent(last[f"accuracy.{name}"])] for name, weight in weights.items()]
        agreements = Table(("annotation", "weight", "agreement"), rows, (1, 2))
        body += [Heading("Agreement with each annotation", 2), agreements]
    if values is not None:
        scale, seen = RewardStatistics(**summary["statistics"]), data.counts > 0
        normalised, messages, counts = scale.normalise(values[seen]), data.table.messages[seen], data.counts[seen]
        order = np.argsort(normalised, kind="stable")

        def listed(chosen: np.ndarray) -> Table:
            rows: list[list[Text]] = [
                [f"{normalised[at]:+.2f}", quoted(decode(messages[at])), f"{counts[at]:,}"] for at in chosen.tolist()
            ]
            return Table(("reward", "caption", "times"), rows, numbers=(0, 2), kind="fits")

        body += _captions(scale, normalised, order, SHOWN, listed)
        body += [Heading("Most frequent"), listed(np.argsort(-counts, kind="stable")[:SHOWN])]
        part += _captions(scale, normalised, order, IN_REPORT, listed)
        likes = listed(order[::-1][:LIKED])
    held_out = data.split.validation
    bins = statistics.calibration(rewards[held_out].mean(-1), data.target[held_out])
    lines = {"this reward": [(row["predicted"], row["stated"]) for row in bins], "perfect": [(0.0, 0.0), (1.0, 1.0)]}
    rows = [[f"{row['predicted']:.2f}", f"{row['stated']:.2f}", f"{row['pairs']:,}"] for row in bins]
    heads = ("predicted P(second is better)", "stated by the annotator", "pairs")
    body += [Heading("Calibration", 2), Curves(lines, heads[0], 0.0, 1.0), Table(heads, rows, numbers=(0, 1, 2))]
    path = stage.path / "reward.html"
    write_whole(path, page(TITLE, body))
    stage.section(TITLE, *part)
    _report(stage, summary, data.dataset, likes)
    return path


def _report(stage: StageRun, summary: Mapping[str, Any], dataset: PairDataset, likes: Table | None) -> None:
    """Writes the report, with the facts for its first page, and a part about annotations that were made elsewhere.

    `likes`: a table of the best captions, if they are known.
    """
    said, judges, goals, elsewhere, last = Run(stage.workdir).facts(), [], [], list[Block](), summary["history"][-1]
    for name in summary["annotators"]:
        facts = said.get(("annotate", name), Facts())
        if facts.judge is None:
            bar = label_bar(count(dataset.preference(name)))
            ours = annotation_folder(dataset.path, name).exists()
            who = "These labels were made by an earlier version." if ours else "These labels were made elsewhere."
            elsewhere += [Heading(name), Paragraph(who, "soft"), bar]
        judges.append(facts.judge or Judge((f"the annotation {name}",), pairs=len(dataset)))
        goals += [facts.goal] if facts.goal else []
    stage.section(PREFERENCES, *elsewhere)
    agrees, judge, goal = percent(last["accuracy"]), together(judges), ", ".join(dict.fromkeys(goals))
    tested: Text = "None of the pairs that were set aside has a preference, so the reward was not tested."
    if last["sided"]:
        chance = " (50 % is chance)" if last["accuracy_low"] <= 0.5 else ""
        rest = f" of those that were set aside{chance}."
        tested = "A reward learnt from these answers agrees with ", Span(agrees), rest
    # Its aim is that of its labels alone, whatever other annotations the workdir has.
    stage.report(Facts(
        title=f"A reward {aim_of(goal) or f'for {judge.liked}'}", goal=goal, judge=judge, likes=likes,
        agreement=noted(agrees, f"of {evidence(last)}") if last["sided"] else agrees,
        lead=(sentence(judges, goals, len(dataset)), " ", tested), machine=summary.get("machine"),
        made=date_of(time.time()),
    ))  # fmt: skip


def _learning(history: list[dict[str, Any]]) -> list[Block]:
    """Accuracy and loss."""
    last = history[-1]
    figures = [(percent(last["accuracy"]), f"agreement with {evidence(last)}")]
    if last["unseen_sided"]:
        unseen = f"agreement with the {last['unseen_sided']:,} of them that have a caption never seen in training"
        figures.append((percent(last["unseen_accuracy"]), unseen))
    if not math.isnan(last.get("score_accuracy", math.nan)):
        figures.append((percent(last["score_accuracy"]), "of the time, it prefers the moment with the higher score"))
    figures.append((f"{last['loss']:.3f}", "validation loss; 0.693 is chance"))

    def line(name: str, scale: float = 1.0) -> list[tuple[float, float]]:
        return [(row["epoch"], scale * row[name]) for row in history if row.get(name) is not None]

    names = {"validation": "accuracy", "training": "train_accuracy", "new captions": "unseen_accuracy"}
    accuracy = {words: line(name, 100) for words, name in names.items()}
    loss = {"validation": line("loss"), "training": line("train_loss")}
    charts = [
        Curves(accuracy, "epochs", high=100.0, title="Agreement with its own labels", note="% of preferences"),
        Curves(loss, "epochs", title="Loss", note="0.693 is chance"),
    ]
    return [Tiles(figures), Box(charts, "charts")]


def _captions(
    scale: RewardStatistics, rewards: np.ndarray, order: np.ndarray, shown: int, listed: Callable[[np.ndarray], Table]
) -> list[Block]:
    """Distribution of the captions' rewards, and the `shown` best and worst.

    `rewards`: normalised, of the captions that training shows. [S] `order`: their numbers, from the lowest reward on.
    `listed`: from numbers of captions to a table.
    """
    usual = scale.quantile(USUAL)
    zero = "their mean is 0" if scale.anchor is None else "a moment without a message has 0"
    levels = ", ".join(f"{level:.0%} lie below {scale.quantile(level):.2f}" for level in THRESHOLDS)
    heights, edges = (array.tolist() for array in np.histogram(rewards, bins=60))
    low, high = edges[0], edges[-1]
    marks = [((usual - low) / (high - low), f"{USUAL:.0%} lie below {usual:.2f}")] if low <= usual <= high else []
    words = [f"{edge:.1f}" for edge in (low, (low + high) / 2, high)]
    of = [f"{start:.2f} to {stop:.2f}" for start, stop in itertools.pairwise(edges)]
    explained = (
        f"How many of the {len(order):,} different captions have which reward; heights are square roots. The variance "
        f"of the rewards over all moments is 1, and {zero}; of all moments, {levels}. By default, the agent is not "
        f"paid for rewards below {usual:.2f}."
    )
    return [
        Heading("Distribution"),
        Columns(heights, words, marks, of, root=True),
        Paragraph(explained, "soft"),
        Box(
            [
                Box([Heading("Likes most"), listed(order[::-1][:shown])]),
                Box([Heading("Likes least"), listed(order[:shown])]),
            ],
            "pair",
        ),
    ]


def faithfulness(worth: Mapping[str, Any]) -> str:
    """A sentence on the agreement of the reward with the worth by the rules (`compare_with_worth`); "" if unknown."""
    if worth["linear"] != worth["linear"]:
        return ""
    paid = f", and small worths are paid {worth['inflation']:.2f} times their share (median)"
    return (
        f"on {worth['captions']:,} captions that training never saw, the correlation of the reward with the worth to "
        f"the rules is {worth['linear']:.3f}, that of their ranks {worth['rank']:.3f}"
        f"{paid if worth['inflation'] == worth['inflation'] else ''}"
    )


def _worth(worth: Mapping[str, Any]) -> list[Block]:
    """What captions of each worth are paid, as a share of what the best are paid; nothing if unknown."""
    if not (words := faithfulness(worth)):
        return []
    body: list[Block] = [
        Heading("Against the worth to the rules", 2),
        Paragraph(f"{words[0].upper() + words[1:]}.", "soft"),
    ]
    keys = {"worth": "g", "due": ".2f", "share": ".2f", "captions": ",d"}
    if rows := [[format(row[key], form) for key, form in keys.items()] for row in worth["levels"]]:
        body.append(Table(("worth", "share due", "share paid", "captions"), rows, numbers=(0, 1, 2, 3)))
        words = "Shares are of what the best captions are worth and are paid; a moment without a message is 0."
        body.append(Paragraph(words, "soft"))
    return body


def evidence(row: Mapping[str, Any]) -> str:
    """The evidence for an accuracy, in words: validation preferences, different questions, 95 % interval, chance.

    Chance is one half even if most preferences are for one side, because a reward does not know a moment's side.
    """
    number, asked = row.get("sided", 0), row.get("questions", 0)
    of = f" ({asked:,} different question{'s' * (asked != 1)})" if asked else ""
    words = "no evidence that it is better than chance"
    if number:
        low, high = row["accuracy_low"], row["accuracy_high"]
        chance = "no better than chance, which is 50 %" if low <= 0.5 else "chance is 50 %"
        words = f"95 % interval {low:.1%} to {high:.1%}, {chance}"
    return f"{number:,} validation preference{'s' * (number != 1)}{of}: {words}"


def percent(value: float | None) -> str:
    """Formats a share as a percentage, or as a dash if it is None or NaN."""
    return "–" if value is None or value != value else f"{value:.1%}"
