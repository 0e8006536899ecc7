"""Every reward source goes on from its checkpoint, also from one of a time when it had seen and learnt nothing."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import get_config, viewed
from policy_rewards_test import make_reward
from rnd_test import B, T, observations

from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.devices.mesh import make_mesh, shard
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.nethack.observations import observation_specs
from motif_jax.names import SOURCES, import_named
from motif_jax.rewards.learnt_source import LearntSource, Mix
from motif_jax.rewards.registry import LEARNT, ONLINE, kind_of
from motif_jax.rewards.section import KINDS
from motif_jax.rewards.source import RewardSources, Setting, Weighted, sources_from

PAIRS = f"{ONLINE} ranking without an anchor"
ALONE = [name for name in SOURCES if name != ONLINE and not kind_of(name).has_argument]
CASES = [*ALONE, *(f"{ONLINE} {kind}" for kind in KINDS), PAIRS]
READS, EVENTS = ("blstats", "crop", "message"), ("event_message", "event_message_count", "event_blstats", "event_drawn")


def make(case, folder):
    name, kind = [*case.split(" "), ""][:2]
    if name == LEARNT:
        source = LearntSource(make_reward(), Mix(), False)
    else:
        (folder / "words.vec").write_text("gold 1 0\nnewt 0 1\n")
        config = get_config(policy__synchronous=True)
        config.policy.online.update({"message": "lt_cnn_small", "batch_size": 8, "updates_early": 1})
        config.policy.online.kind = kind or KINDS[0]
        config.words.vectors = str(folder / "words.vec")
        config.policy.online.anchor = "none" if case == PAIRS else "neutral"
        config.policy.online.goals = "Collect gold@0" if kind == "words" else "defaultgoal@0"
        setting = Setting(viewed(config), folder, observation_specs((*READS, *EVENTS)), READS, make_mesh(1))
        source = import_named(kind_of(name).path).make(setting)
    return RewardSources([Weighted(name, kind_of(name).path, 0.5, source)])


def rollouts(seed, texts):
    found = observations(np.random.default_rng(seed))
    message = np.zeros((T, B, 256), np.uint8)
    for number, place in enumerate(np.ndindex(T, B)):
        text = texts[number % len(texts)].encode()
        message[place][: len(text)] = np.frombuffer(text, np.uint8)
    bottom = np.zeros((T, B, 27), np.int32)
    bottom[..., 20] = np.arange(T)[:, None]  # the clock goes on in every step
    found |= dict(zip(EVENTS, (message, np.ones((T, B), np.int32), bottom, np.ones((T, B), np.int32)), strict=True))
    found["game"] = np.arange(B)[None]
    found |= {name: np.zeros((T, B), bool) for name in ("terminated", "truncated")}
    found |= {"reward": np.zeros((T, B), np.float32), "action": np.zeros((T, B), np.int32)}
    return found | {"first": np.zeros((T + 1, B), bool)}


# No text at all, of which there is no pair; then more of them.
BATCHES = [rollouts(0, [""]), rollouts(1, ["You find gold.", "You kill the newt!", ""]), rollouts(2, ["A door.", ""])]


def advance(sources, batch):
    """What the sources give, before they learn from it."""
    (one,) = sources
    given = None if one.name == LEARNT else one.source.rewards(batch)  # that needs its table, and learns nothing
    read = {name: batch[name] for name in READS}
    placed = SimpleNamespace(**shard({"observations": read, "action": batch["action"]}, make_mesh(1), axis=1))
    sources.advance(SimpleNamespace(steps=T * B, arrays=SimpleNamespace(rollouts=placed)), None)
    return given


@pytest.mark.differs(
    "oni", there="a resumed run begins without ranking's data and moments", here="checkpoints hold both"
)
@pytest.mark.parametrize("case", CASES)
def test_every_source_goes_on_from_any_moment(case, tmp_path):
    sources, moments = make(case, tmp_path), []
    for number, batch in enumerate(BATCHES):
        checkpoints = Checkpoints(tmp_path / str(number))
        checkpoints.save(number, {"sources": sources.arrays()}, {"sources": sources.facts()})
        checkpoints.close()
        before = sum_of_arrays(sources.arrays())
        moments.append((number, batch, before, advance(sources, batch), sum_of_arrays(sources.arrays())))
    if case.startswith(ONLINE) and "words" not in case:
        assert sources.figures()[f"reward/{ONLINE}_labels"] > 1  # something was learnt on the way

    again = make(case, tmp_path)
    for number, batch, before, given, after in reversed(moments):
        with reading(tmp_path / str(number)) as found:
            _, whole, facts = found.readable("last")
        again.restore(facts["sources"], whole.get("sources", {}))
        assert sum_of_arrays(again.arrays()) == before
        assert sources_from(facts, whole).facts() == again.facts() == sources.facts()
        np.testing.assert_array_equal(advance(again, batch), given)
        assert sum_of_arrays(again.arrays()) == after
