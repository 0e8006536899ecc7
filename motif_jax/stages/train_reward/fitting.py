"""Trains the reward on the labels, and writes checkpoints that can be used without the dataset.

Before every epoch, and after the last, the network computes the reward of each distinct caption once. The validation,
and the statistics that normalise the agent's reward, use these values. A checkpoint holds the network, the optimiser,
the statistics and the captions; training that resumes from it has bitwise equal results.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from motif_jax.captions import WIDTH
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.envs.worlds import title
from motif_jax.files import checkpoint_steps, make_anew, to_plain, write_config, write_json, write_lines
from motif_jax.rewards import labels
from motif_jax.rewards.against_worth import compare_with_worth
from motif_jax.rewards.batches import epoch_order, make_batches
from motif_jax.rewards.model import make_reward_model, make_value, value_captions
from motif_jax.rewards.preference import TrainState, make_reward_update, zero_sums
from motif_jax.rewards.statistics import RewardStatistics
from motif_jax.rewards.torch_format import FLAG, read_checkpoint, read_quantiles
from motif_jax.run import Run
from motif_jax.stages.train_reward.inputs import label_checksums
from motif_jax.stages.train_reward.page import (
    faithfulness,
    percent,
    preferences,
    report_reward,
    verdict,
    write_page,
)
from motif_jax.stages.train_reward.setup import (
    about_anchor,
    about_labels,
    advice,
    check_finite,
    check_values,
    extra_observations,
    load_data,
    make_statistics,
    measure,
    neutral_reward,
    train_figures,
    value_pairs,
    worth_of_captions,
)
from motif_jax.structs import Interrupted, UserError
from motif_jax.system.machine import describe
from motif_jax.system.metrics import Progress
from motif_jax.system.startup import say

STEPS = 32  # batches on the device at a time, for models that read more than the message


def train(config: ConfigDict, workdir: Path) -> None:
    """Trains the reward in `workdir/reward`, or resumes an earlier run there."""
    try:
        with contextlib.ExitStack() as at_the_end:
            learn(config, workdir, at_the_end)
    except Interrupted:
        if saved := checkpoint_steps(workdir / "reward" / "checkpoints"):
            say(f"the reward is saved at the end of each epoch: what was learnt after epoch {saved[-1]} is lost")
        raise


def learn(config: ConfigDict, workdir: Path, at_the_end: contextlib.ExitStack) -> None:
    """Trains until the last epoch; the callbacks of `at_the_end` run also after an error."""
    section, folder = config.reward, workdir / "reward"

    # ---- data
    data = load_data(config, workdir)
    labelled = np.flatnonzero(~np.isnan(data.target[: data.given]))
    split = labels.split_rows(labelled, section.validation_share, config.seed)
    if not len(split.train) or not len(split.validation):
        raise UserError(
            f"{len(split.train) + len(split.validation)} labelled pairs are too few to train and to validate "
            "(--config.annotate.max_pairs, --config.reward.validation_share)"
        )
    counts = np.bincount(data.ids[split.train].reshape(-1), minlength=len(data.table))
    trained = np.concatenate([split.train, np.arange(data.given, len(data.target))])

    # ---- model, optimiser, devices
    mesh = make_mesh()
    if section.batch_size % mesh.size:
        raise UserError(
            f"batch_size {section.batch_size} cannot be split among {mesh.size} devices (--config.reward.batch_size)"
        )
    options = {name: section[name] for name in ("message", "blstats", "crop", "glyphs")}
    apply, params = make_reward_model(options, config.seed)
    value = make_value(apply)
    optimizer = optax.adam(section.learning_rate)
    update = map_update(make_reward_update(apply, optimizer), mesh, batch_axis=1, num_constants=2)
    state = replicate(TrainState(params, optimizer.init(params), zero_sums()), mesh)
    table = replicate(jnp.asarray(data.texts), mesh)
    extra = extra_observations(data.dataset, options)

    # ---- resume
    checkpoints = Checkpoints(folder / "checkpoints")
    at_the_end.callback(checkpoints.close)
    kept = {"captions": data.table.messages, "counts": counts.astype(np.int32)}
    epoch, items, history = 0, 0, []
    if (found := checkpoints.latest()) is not None:
        epoch, whole, facts = found
        if facts["dataset"] != data.fingerprint or facts["target"] != data.checksum:
            raise UserError(f"{str(folder)!r} was trained on other labels: choose another --workdir, or remove it")
        train = rebuild(state, leaves_by_path(whole["train"]), folder / "checkpoints", "--workdir")
        state, history, items = replicate(train, mesh), facts["history"], facts["items"]
        print_line(f"train_reward: going on after epoch {epoch}")
    write_config(folder, config)

    # ---- train
    print_line("train_reward: compiling the first update")
    progress = Progress("train_reward", section.num_epochs, "epochs", epoch)
    fresh, started = found is None, time.monotonic()
    while True:
        values = None if extra else value_captions(value, state.params, table)
        rewards = value_pairs(value, state.params, table, data, extra) if values is None else values[data.ids]
        check_values(rewards, folder, epoch)
        if fresh:
            anchor = neutral_reward(rewards, data, trained) if section.anchor == "neutral" else None
            statistics = make_statistics(values, counts, rewards[split.train], section.reference_quantiles, anchor)
            row = measure(rewards[split.validation].mean(-1), split.validation, data, counts) | {"epoch": epoch}
            row |= train_figures(state) | {"seconds": round(time.monotonic() - started, 2)}
            history.append(row)
            write_lines(folder / "metrics.jsonl", history)
            facts = {"epoch": epoch, "model": options, "history": history, "statistics": statistics.record()}
            facts |= {"dataset": data.fingerprint, "target": data.checksum, "annotators": data.weights, "items": items}
            facts |= {"labels": label_checksums(data.dataset, config), "config": to_plain(config.to_dict())}
            checkpoints.save(epoch, {"train": state, **kept}, facts, row["loss"])
        if epoch >= section.num_epochs:
            break
        state = state._replace(sums=replicate(zero_sums(), mesh))
        order = epoch_order(trained, config.seed, epoch)
        stretch = STEPS * section.batch_size if extra else len(order)  # observations beside messages are large
        for start in range(0, len(order), stretch):
            rows = order[start : start + stretch]
            batches = make_batches(rows, data.ids, data.target, section.batch_size, mesh.size, extra, items, data.sided)
            items = batches.captions.shape[-1]  # the next batches keep it: no recompilation, equal sums if resumed
            placed = shard(batches, mesh, axis=1)
            for step in range(len(batches.captions)):
                state = update(state, table, np.int32(step), placed)
            check_finite(state, batches, data, folder, start // section.batch_size, epoch)
        epoch, fresh = epoch + 1, True
        progress.update(epoch, loss=f"{history[-1]['loss']:.4f}", agreement=percent(history[-1]["accuracy"]))
    progress.close()
    checkpoints.wait()

    # ---- results
    summary = facts | {
        "best_epoch": min(history, key=lambda row: row["loss"])["epoch"],
        "parameters": sum(array.size for array in jax.tree.leaves(params)),
        "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    }
    neutral = neutral_reward(rewards, data, trained)
    if values is not None and (worth := worth_of_captions(config, data)) is not None:
        held_out = np.zeros(len(values), bool)
        held_out[data.ids[split.validation]] = True
        summary["worth"] = compare_with_worth(values, worth, counts, held_out, neutral)
    statistics = RewardStatistics(**facts["statistics"])
    last, chosen = history[-1], split.validation
    stage = Run(workdir).stage("train_reward", folder.name)
    page = write_page(stage, summary, statistics, values, data.table.messages, counts, rewards[chosen].mean(-1),
                      data.target[chosen], data.dataset, title(config.env))  # fmt: skip
    write_json(folder / "statistics.json", summary)
    unseen = f"; {last['unseen_accuracy']:.1%} on {last['unseen_sided']:,} with a caption that training never saw"
    print_line(
        f"train_reward: epoch {epoch}: validation loss {last['loss']:.4f}, agreement with its own labels "
        f"{percent(last['accuracy'])} on {preferences(last)}: {verdict(last)}{unseen if last['unseen_sided'] else ''}; "
        f"{len(split.train):,} training pairs in {time.monotonic() - started:.1f} s"
    )
    about = [about_labels(data, section.labels), about_anchor(section.anchor, neutral), advice(data)]
    for words in (faithfulness(summary["worth"]) if "worth" in summary else "", *about):
        if words:
            print_line(f"train_reward: {words}")
    print_line(f"train_reward: checkpoints in {folder / 'checkpoints'}, to look at: {page}")


def import_published(config: ConfigDict, folder: Path) -> None:
    """Makes a reward from a checkpoint of the published system, with the statistics beside it."""
    file = Path(config.reward.import_from)
    arrays, known = read_checkpoint(file)
    epoch, quantiles, doubt = read_quantiles(file, int(known["num_iter"]))
    if doubt:
        print_line(f"train_reward: {doubt}")
    options = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False}
    _, like = make_reward_model(options, 0)
    params = rebuild(like, arrays, file, FLAG)
    state = TrainState(params, optax.adam(config.reward.learning_rate).init(params), zero_sums())
    statistics = RewardStatistics(known["reward_mean"], known["reward_var"], quantiles)
    facts = {"epoch": epoch, "model": options, "history": [], "statistics": statistics.record()}
    facts |= {"dataset": "", "target": "", "annotators": {}, "labels": {}, "imported_from": str(file.resolve())}
    make_anew(folder / "checkpoints")  # replaces those of a killed import
    write_config(folder, config)
    checkpoints = Checkpoints(folder / "checkpoints")
    nothing = {"captions": np.zeros((1, WIDTH), np.uint8), "counts": np.zeros(1, np.int32)}
    checkpoints.save(epoch, {"train": state, **nothing}, facts, 0.0)
    checkpoints.close()
    report_reward(Run(folder.parent).stage("train_reward", folder.name), facts, None, None, "")
    write_json(folder / "statistics.json", facts | {"best_epoch": epoch})
    print_line(f"train_reward: imported {str(file)!r} with its mean, variance and quantiles")
