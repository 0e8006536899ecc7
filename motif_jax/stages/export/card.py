"""The card of a release: README.md with the YAML front matter of the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.console import clean
from motif_jax.devices.releases import PREFIX
from motif_jax.envs.protocols import TASK, TITLES
from motif_jax.envs.worlds import title
from motif_jax.networks.kinds import is_own
from motif_jax.pages.figures import in_order
from motif_jax.pages.formats import exact
from motif_jax.rewards.choice import LEARNT

Facts = Mapping[str, Any]
HUB = "reinforcement-learning"
PLACE = "DIRECTORY is the directory of this card."
JUDGES = {"lexicon": "a lexicon of rules over the game's messages", "score": "an oracle that knows the score",
          "return": "an oracle that knows the rewards", "random": "chance"}  # fmt: skip


def write_card(facts: Facts, arrays: Mapping[str, Mapping[Any, Any]], about: str) -> str:
    """The text of the card. `facts`: of config.json. `about`: sentences of the user's own."""
    name, results = facts["name"], facts["results"]
    parts = [_front_matter(facts), f"# {clean(name)}", *([clean(about, 2000)] if about else []), _use(facts)]
    parts += ["## How it was made", _table(("", ""), _made(facts, arrays))]
    for evaluation in results["evaluations"]:
        parts += [f"## How good it is: {_games(evaluation)}", _figures(evaluation)]
    if results.get("over_seeds"):
        parts += [f"## Over {results['seeds']} seeds", _over_seeds(results["over_seeds"])]
    elif results["evaluations"]:
        parts.append("This is one run. Other seeds give other agents, so it does not support claims about learning.")
    parts += ["## Licence", clean(facts["licence"]) if facts["licence"] else "Not stated."]
    return "\n\n".join(parts) + "\n"


def _front_matter(facts: Facts) -> str:
    """The metadata for the Hub; every value is written as JSON, which YAML includes."""
    env = _env(facts)
    about: dict[str, Any] = {"license": facts["licence"]} if facts["licence"] else {}
    tags = [HUB, *({env.get("world", "nethack"): 0, title(env): 0} if env else {})]
    about |= {"library_name": "motif_jax", "pipeline_tag": HUB, "tags": tags}
    metrics = [
        {"type": f"mean_{figure}", "name": f"mean {figure}", "value": round(interval["mean"], 4), "verified": False}
        for evaluation in facts["results"]["evaluations"][:1]
        for figure, interval in evaluation["figures"].items()
        if interval
    ]
    if metrics:
        dataset = {"name": title(env), "type": title(env)}
        result = {"task": {"type": HUB, "name": HUB}, "dataset": dataset, "metrics": metrics}
        about["model-index"] = [{"name": facts["name"], "results": [result]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in about.items()), "---"])


def _use(facts: Facts) -> str:
    kinds = [kind for kind in ("policy", "reward") if kind in facts]
    what = {"policy": "A policy that plays", "reward": "a learnt reward"}
    said = " and ".join(what[kind] for kind in kinds)
    own = facts["name"].startswith(f"{PREFIX}/")
    where, note = (json.dumps(facts["name"]), "It comes with the program.") if own else ("DIRECTORY", PLACE)
    lines = [f"{kind} = motif_jax.load_{kind}({arguments(facts, kind, where)})" for kind in kinds]
    code = "\n".join(["```python", "import motif_jax", "", *lines, "```"])
    return f"{said[0].upper()}{said[1:]}, from motif_jax. {note}\n\n{code}"


def arguments(facts: Facts, kind: str, where: str) -> str:
    """The arguments of `motif_jax.load_policy` or `load_reward` for a release in the directory `where`, as code."""
    network = facts[kind]["facts"]["model"].get("network", "")
    return f"{where}, trusted={json.dumps([network])}" if kind == "policy" and is_own(network) else where


def _env(facts: Facts) -> Facts:
    """The section `env` of the config that the policy, or else the reward, was trained with."""
    found = [facts[kind]["facts"].get("config", {}).get("env") for kind in ("policy", "reward") if kind in facts]
    return next(filter(None, found), {})


def _made(facts: Facts, arrays: Mapping[str, Mapping[Any, Any]]) -> list[tuple[str, str]]:
    """Rows on training and reward; unknown values are left out."""
    rows: list[tuple[str, Any]] = []
    env = _env(facts)
    if env:
        steps = f"episodes of at most {env['max_episode_steps']:,} steps"
        rows.append(("game", ", ".join({env.get("world", "nethack"): 0, title(env): 0, steps: 0})))
    if "policy" in facts:
        own, training = facts["policy"]["facts"], facts["results"].get("training", {})
        model, settings = own["model"], own["config"].get("policy", {})
        rows.append(("policy", f"network {model['network']}, {_count(arrays['policy'])} parameters in float32"))
        seconds = f" in {training['seconds']:,.0f} s" if "seconds" in training else ""
        machine = training.get("machine", {})
        where = f" on {machine['cores']} cores of {machine['processor']}" if "processor" in machine else ""
        rows.append(("training", f"{facts['policy']['step']:,} steps{seconds}{where}, {settings.get('algorithm', '')}"))
        rows.append(("rewarded by", _rewarded(own["sources"], settings.get("extrinsic_coefficient", 0.0))))
        rows.append(("seed", own["config"].get("seed")))
    if "reward" in facts:
        own = facts["reward"]["facts"]
        config, history = own.get("config", {}), own.get("history") or [{}]
        rows.append(("reward", f"{_count(arrays['reward'])} parameters in float32, epoch {facts['reward']['step']}"))
        if asked := config.get("annotate"):
            judge = asked.get("model") or JUDGES.get(asked.get("backend"), asked.get("backend"))
            rows.append(("preferences of", f"{judge}, goal: {asked.get('goal')}"))
        if "pairs" in own:
            rows.append(("learnt from", f"{own['pairs']:,} pairs of moments"))
        if (accuracy := history[-1].get("accuracy")) is not None:
            rows.append(("agrees with", f"{accuracy:.1%} of the preferences that were set aside"))
    rows.append(("made by", facts["made_by"]))
    return [(name, clean(value)) for name, value in rows if value not in (None, "")]


def _rewarded(sources: Facts, game: float) -> str:
    found = {"the game": game} | {name: source["coefficient"] for name, source in sources.items()}
    words = {LEARNT: "the learnt reward"}
    return ", ".join(f"{words.get(name, name)} x {weight:g}" for name, weight in found.items() if weight)


def _count(arrays: Mapping[Any, Any]) -> str:
    return f"{sum(np.size(array) for path, array in arrays.items() if path[0] in ('params', 'frozen')):,}"


def _games(evaluation: Facts) -> str:
    protocol = evaluation["protocol"]
    rules = evaluation["task"] if protocol == TASK else f"by the rules of {TITLES.get(protocol, protocol)}"
    return f"{evaluation['episodes']:,} games, {rules}{', greedy' if evaluation['greedy'] else ''}"


def _figures(evaluation: Facts) -> str:
    """A row per figure: mean with its 95 % interval, and median; also for random play, if it was evaluated."""
    beside = evaluation["random"]
    head = ["per game", "mean [95 % interval]", "median", *(["random play", "median"] if beside else [])]
    rows = []
    for figure in in_order(evaluation["figures"]):
        interval = evaluation["figures"][figure]
        if interval:
            rows.append([figure, *_cells(interval), *(_cells(beside.get(figure)) if beside else [])])
    return _table(head, rows)


def _cells(interval: Facts | None) -> list[str]:
    if not interval:
        return ["", ""]
    known = interval.get("low") is not None
    ends = f" [{exact(interval['low'])}, {exact(interval['high'])}]" if known else ""
    return [f"{exact(interval['mean'])}{ends}", "" if interval.get("median") is None else exact(interval["median"])]


def _over_seeds(figures: Facts) -> str:
    rows = [[figure, _cells(figures[figure])[0]] for figure in in_order(figures) if figures[figure]]
    return _table(["mean of the seeds' means", "[95 % interval over seeds]"], rows)


def _table(head: Any, rows: Any) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
