"""Training of the policy, from games to checkpoints.

Three things go on at a time: workers play, a thread answers them with the newest policy, and this one learns. Rollouts
come as batches; each is learnt from `num_epochs` times, and the policy that results is played from then on. Of several
hosts, each does this with its own games; the first one writes.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.handoff import Batch
from motif_jax.actors.pool import ActorPool
from motif_jax.api import name_of
from motif_jax.envs.seeding import Stream as Games
from motif_jax.envs.vector import GameSettings
from motif_jax.files import write_config, write_json, write_whole
from motif_jax.learner.update import make_update
from motif_jax.metrics import Progress, Writers
from motif_jax.parallel import host, local_copy, make_mesh, map_update, start_hosts
from motif_jax.stages.policy_acting import PolicyPlayer, Rounds, Stream
from motif_jax.stages.policy_hosts import Hosts, Wish
from motif_jax.stages.policy_record import Record, keep_rows, summarise
from motif_jax.stages.policy_setup import (
    learner_settings,
    make_mix,
    make_model,
    make_pay,
    make_place,
    make_shape_rewards,
)
from motif_jax.stages.policy_start import Keeper, StopAsked, Trace, begin, check_batch
from motif_jax.stages.train_policy import coordinator, finished
from motif_jax.structs import Stopped, UserError

EPISODES_PER_HOST = 2**40  # so that no two hosts play the same games
PATIENCE_S = 0.5  # how often a learner without batches looks around


class Pending(NamedTuple):
    """An update whose figures were not looked at yet, because the device is still at it."""

    update: int
    env_steps: int
    batch: Batch
    metrics: dict[str, jax.Array]


def train(config: ConfigDict, workdir: Path) -> None:
    """Makes `workdir/policy`, or goes on with it."""
    start_hosts(coordinator(config), config.distributed.num_processes, config.distributed.process_id)
    with contextlib.ExitStack() as stack:
        together, stop = stack.enter_context(Hosts()), StopAsked()
        if together.count > 1:  # a host that left during the preparations would be waited for
            stack.enter_context(stop)
        learn(config, workdir, together, stop)


def learn(config: ConfigDict, workdir: Path, together: Hosts, stop: StopAsked) -> None:
    """The training, on each of the hosts."""
    section, folder = config.policy, workdir / "policy"
    me, hosts = together.me, together.count

    # ---- network, reward, learner, devices
    settings = GameSettings(**config.env)
    mesh = make_mesh(section.num_devices, "--config.policy.num_devices")
    rollouts = check_batch(config, mesh.size, hosts)
    options = {"network": section.network, "num_actions": settings.num_actions, "dtype": section.dtype}
    model = make_model(options, config.seed)
    pay = make_pay(config, workdir)
    learner = learner_settings(config)
    shape_rewards = make_shape_rewards(pay.mix if pay else make_mix(config, None))
    update = map_update(make_update(model.unroll, shape_rewards, learner), mesh, batch_axis=1, num_constants=1)

    # ---- where it begins
    keeper = Keeper(config, folder, options, pay) if me == 0 else None
    state, done = begin(config, keeper, model, learner, pay, mesh, together)
    if done["env_steps"] and me == 0:
        print(f"train_policy: going on after {done['env_steps']:,} steps")
    if me == 0:
        write_config(folder, config)
        keep_rows(folder / "metrics.jsonl", done["env_steps"])

    # ---- games
    total_groups = max(section.num_workers, 1) * section.groups
    player = PolicyPlayer(
        model,
        max(section.num_workers, 1) * section.games_per_worker,
        section.games_per_worker // section.groups,
        seed=config.seed + done["updates"] * hosts + me,
    )
    player.swap(local_copy(state.params), done["updates"])
    observations = {*model.reads, *(pay.observations if pay else ())}
    with contextlib.ExitStack() as stack:
        if hosts == 1:
            stack.enter_context(stop)
        pool = stack.enter_context(
            ActorPool(
                settings,
                tuple(sorted(observations)),
                num_workers=section.num_workers,
                games_per_worker=section.games_per_worker,
                rollout_length=section.rollout_length,
                groups=section.groups,
                outputs=player.outputs,
                starts=player.starts,
                warmup_steps=section.warmup_steps,
                slots_per_group=-(-rollouts // total_groups) + 1,
                seed=config.seed,
                stream=Games.TRAIN,
                first_episode=me * EPISODES_PER_HOST + done["next_episode"],
                hang_timeout_s=section.hang_timeout_s,
                flag="--config.policy",
            )
        )
        source = (Rounds if section.synchronous else Stream)(pool, player, rollouts, make_place(model, pay, mesh))
        stack.callback(source.close)
        record, trace = Record(pool, source), Trace(config.profile, folder / "profile")
        stack.callback(trace.close)
        writers, bar = None, None
        if me == 0:
            writers = Writers(folder, section.tensorboard, section.wandb, config.to_dict())
            stack.callback(writers.close)
            bar = Progress("train_policy", section.train_for_env_steps, "steps", done["env_steps"])
            stack.callback(bar.close)

        # ---- learn
        before, start = dict(done), time.monotonic()
        logged = saved = start
        logged_steps, saved_steps = done["env_steps"], done["env_steps"]
        pending: Pending | None = None
        while True:
            batch = source.get(PATIENCE_S)
            if batch is None and not stop.asked:
                continue
            wish = Wish.END if finished(config, done["env_steps"], done["seconds"]) else Wish.GO_ON
            own_games = pool.next_episode - me * EPISODES_PER_HOST
            wish, others = together.ask(Wish.STOP if stop.asked else wish, (own_games, record.episodes))
            if wish != Wish.GO_ON or batch is None:
                break
            with trace.step(done["updates"]):
                state, metrics = update(state, None, batch.arrays.rollouts)
            player.swap(local_copy(state.params), done["updates"] + 1)
            done["updates"] += 1
            done["env_steps"] += batch.steps * hosts
            done["seconds"] = before["seconds"] + time.monotonic() - start
            done["next_episode"] = int(max([pool.next_episode - me * EPISODES_PER_HOST, *others[:, 0]]))
            record.batch(batch)
            done["episodes"] = before["episodes"] + record.episodes + int(others[:, 1].sum())
            if pending:
                look_at(pending, record, folder, source)
            pending = Pending(done["updates"], done["env_steps"], batch, metrics)

            now = time.monotonic()
            if writers and bar and now - logged > section.log_every_s:
                rate = (done["env_steps"] - logged_steps) / (now - logged)
                row = {"seconds": round(done["seconds"], 2), "updates": done["updates"], "steps_per_s": round(rate, 1)}
                if pay and pay.table:
                    row |= {"reward/messages": len(pay.table), "reward/new_messages": pay.table.misses}
                writers.write(done["env_steps"], row | record.row(now - logged))
                logged, logged_steps = now, done["env_steps"]
            if bar:
                bar.update(done["env_steps"], **notes(record, bool(pay)))
            due = done["env_steps"] - saved_steps >= section.save_every_steps or now - saved >= section.save_every_s
            if keeper and due:
                keeper.save(state, done)
                saved, saved_steps = time.monotonic(), done["env_steps"]
        if pending:
            look_at(pending, record, folder, source)
        if writers and done["env_steps"] > logged_steps:
            seconds = max(time.monotonic() - logged, 1e-9)
            rate = (done["env_steps"] - logged_steps) / seconds
            row = {"seconds": round(done["seconds"], 2), "updates": done["updates"], "steps_per_s": round(rate, 1)}
            writers.write(done["env_steps"], row | record.row(seconds))
        restarts = pool.restarts

    # ---- what came of it
    if keeper:
        keeper.save(state, done)
        keeper.close()
        seconds, steps = done["seconds"] - before["seconds"], done["env_steps"] - before["env_steps"]
        recent = summarise(list(record.recent))
        write_json(folder / "summary.json", done | {
            "checkpoint": done["env_steps"],
            "steps_per_s": round(steps / max(seconds, 1e-9), 1),
            "recent_episodes": recent,
            "worker_restarts": restarts,
        })  # fmt: skip
        print(
            f"train_policy: {done['env_steps']:,} steps, {done['updates']:,} updates, {done['episodes']:,} episodes; "
            f"{steps / max(seconds, 1e-9):,.0f} steps/s; checkpoints in {folder / 'checkpoints'}"
        )
    if wish == Wish.STOP:
        raise Stopped(
            f"stopped by {stop.asked or 'a signal to another host'} after {done['env_steps']:,} steps, which are "
            "saved; give the same command again to go on"
        )


def notes(record: Record, paid: bool) -> dict[str, str]:
    """What the progress line says of the last episodes."""
    if not record.recent:
        return {}
    found = summarise(list(record.recent))
    words = {"return": f"{found['return']:.2f}", "depth": f"{found['max_depth']:.1f}"}
    return words | ({"learnt": f"{found['intrinsic_return']:.2f}"} if paid else {})


def look_at(pending: Pending, record: Record, folder: Path, source: Any) -> None:
    """Takes an update's figures from the device; stops where they are no numbers."""
    with source.timers("update"):
        metrics = {name: float(value) for name, value in jax.device_get(pending.metrics).items()}
    record.update(metrics)
    if metrics["finite"]:
        return
    me, hosts = host()
    file = folder / (f"broken-batch-{pending.update}" + (f"-host{me}" if hosts > 1 else "") + ".npz")
    leaves, _ = jax.tree_util.tree_flatten_with_path(pending.batch.arrays.rollouts)
    arrays: dict[str, Any] = {
        ".".join(name_of(path)): np.concatenate([np.asarray(part.data) for part in leaf.addressable_shards], 1)
        for path, leaf in leaves
    }
    write_whole(file, lambda out: np.savez(out, **arrays))
    raise UserError(
        f"the loss is no number any more at update {pending.update} ({pending.env_steps:,} steps); the batch is in "
        f"{str(file)!r}, the last checkpoint is sound: begin another --workdir from it with "
        f"--config.policy.init_from={str(folder.parent)!r} and a smaller --config.policy.learning_rate"
    )
