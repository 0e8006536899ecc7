"""The benchmark of a device as a table for the README, with what limits the speed and what to change next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motif_jax.stages.benchmark.rows import Row

IDLE = 20.0  # % of the time; whoever waits less than that is what the others wait for
BUSY = 60.0  # % of the time; a thread that works more than that leaves little to gain elsewhere
REHEARSAL = (
    "**A rehearsal on a CPU: it shows that every step runs. None of these figures is of a GPU, and none belongs into a "
    "table of results.**"
)
PRECISIONS = {"exact": "float32, exact products", "float32": "float32 as trained", "bfloat16": "bfloat16"}
LINES = {  # what the table says of rows of the benchmark; N stands for the network, M for the number of all games
    "train.steps_per_s": "training for {seconds} s, learnt reward on",
    "train.learnt_return": "learnt return of an episode at its end (at its start: {first})",
    "policy.end_to_end.N": "the same in short runs, {games} games, {workers} workers, batch {batch}",
    "policy.learner.N": "the learner alone, batch {batch}",
    "policy.inference.N": "the policy alone, {games} games at a time",
    "policy.inference_of.M.N": "the policy alone, all games in a call of {ms_per_call} ms",
    "policy.share_of_vendor_peak.learner.N": "the learner's share of the vendor's {vendor}",
    "policy.share_of_vendor_peak.inference.N": "the policy's share of it",
    "policy.matrix_product": "one large matrix product, {dtype}",
    "policy.update_memory.N": "device memory that an update needs",
    "reward.epoch_pairs_per_s.explorer": "training the reward, batch {batch}",
    "gpu_busy.train": "GPU busy while training",
    "gpu_busy.policy.learner.N": "GPU busy in the learner alone",
    "profile.device_busy": "device busy in the profile of {updates} updates",
}


def make_table(result: Mapping[str, Any]) -> str:
    """The table as Markdown.

    Args:
      result: what `benchmark.json` holds: machine, device, rehearsal, rows.
    """
    rows = {row["name"]: Row(**row) for row in result["rows"]}
    network = result["network"]
    device = result["device"]
    gpu: Mapping[str, str] = next(iter(device.get("gpus", [])), {})
    driver = f", driver {gpu['driver']}" if gpu else ""
    what = f"{device['devices']} {device['kind']}{driver}; {result['machine']}; JAX {device['jax']}"
    lines = [REHEARSAL, ""] if result["rehearsal"] else []
    lines += [f"| {what}; network {network}, {result['dtype']} | |", "| --- | ---: |"]
    most = max((int(name.split(".")[2]) for name in rows if name.startswith("policy.inference_of.")), default=0)
    for pattern, text in LINES.items():
        row = rows.get(pattern.replace(".M", f".{most}").replace(".N", f".{network}"))
        if row:
            sizes = {name: f"{size:,}" if isinstance(size, int) else size for name, size in row.sizes.items()}
            lines.append(f"| {text.format(**sizes)} | {number(row.value)} {row.unit} |")
    numerics = [row for name, row in rows.items() if name.startswith("numerics.")]
    for precision, words in PRECISIONS.items():
        of_it = [row for row in numerics if row.name.endswith(f".{precision}")]
        if of_it:
            worst = max(of_it, key=lambda row: row.value / row.sizes["tolerance"])
            verdict = "agrees" if all(row.sizes["agrees"] for row in of_it) else "**differs**"
            name = worst.name.split(".")[1]
            lines.append(
                f"| {words}, against the CPU: {verdict} | {worst.value:g} in {name} (tolerated: "
                f"{worst.sizes['tolerance']:g}) |"
            )
    if sentences := advice(rows, network, result["dtype"]):
        lines += ["", *sentences]
    skipped = ", ".join(f"{name} ({reason})" for name, reason in result["skipped"].items())
    if skipped:
        lines += ["", f"Not measured: {skipped}."]
    return "\n".join(lines) + "\n"


def advice(rows: Mapping[str, Row], network: str, dtype: str) -> list[str]:
    """Where the time goes, what limits the speed, and what to change next; as sentences."""
    start, end = "train.time.", ""
    if f"{start}wait_for_batch" not in rows:
        start, end = "policy.time.", f".{network}"
    shares = {
        name.removeprefix(start).removesuffix(end): row.value
        for name, row in rows.items()
        if name.startswith(start) and name.endswith(end)
    }
    if "wait_for_batch" not in shares:
        return []
    said = ", ".join(f"{name} {share:.0f} %" for name, share in sorted(shares.items(), key=lambda item: -item[1]))
    limit, remedy = find_limit(shares, dtype)
    return [f"Time of each thread: {said}.", "", f"What limits: {limit}. Next: {remedy}."]


def find_limit(shares: Mapping[str, float], dtype: str) -> tuple[str, str]:
    """What the others wait for, and what to change.

    Args:
      shares: % of the time by activity, as train_policy records them: of the learner, of the thread that acts, of the
        hand-off between them, and of the workers on average.
      dtype: of the policy.
    """
    of = {name: shares.get(name, 0.0) for name in ("gather", "policy", "scatter", "stack", "place")}
    acting = of["gather"] + of["policy"] + of["scatter"]
    if shares["wait_for_batch"] < IDLE:
        faster = "" if dtype == "bfloat16" else "--config.policy.dtype=bfloat16, "
        return "the learner, which always has a batch", f"{faster}a larger --config.policy.batch_size, more GPUs"
    if shares.get("workers_wait", 100.0) < IDLE:
        return "the games, whose workers are always at work", "more cores and --config.policy.num_workers"
    if acting > BUSY:
        if of["policy"] > acting / 2:
            what = "the calls of the policy on the device"
            return what, "fewer and larger calls: more --config.policy.games_per_worker, fewer .groups; see profile/"
        what = "the host's copies for acting (gather, scatter)"
        return what, "a faster core for the parent, fewer --config.policy.num_workers with more .games_per_worker"
    if of["stack"] + of["place"] > BUSY:
        return "the hand-off, which stacks and places batches", "a smaller --config.policy.batch_size, a faster core"
    return "nothing alone: everybody waits for somebody in turn", (
        "more that overlaps: more --config.policy.games_per_worker or .groups, a smaller .batch_size"
    )


def number(value: float) -> str:
    """A figure for people: three digits or more, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
