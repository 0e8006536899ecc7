"""The kind of an online reward, made from the facts that a checkpoint holds; and these facts, made from the config."""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.rewards.online.captioned import captioned_facts
from motif_jax.rewards.online.kinds import Kind, Retrieval
from motif_jax.rewards.online.networks import Classification, Ranking, Teaching
from motif_jax.rewards.source import Facts

DECIDING = ("kind", "goals", "threshold", "floor", "normalise", "capacity")  # values that rewards depend on


def make_facts(config: ConfigDict, judge: Facts) -> Facts:
    """All that rewards depend on, beside what is learnt; `judge`: what its labels depend on."""
    section = config.policy.online
    teaching = Teaching(
        message=section.message,
        learning_rate=section.learning_rate,
        batch_size=section.batch_size,
        lessons_early=section.lessons_early,
        lessons_late=section.lessons_late,
        switch_at=section.switch_at,
        seed=config.seed,
    )
    facts = {name: section[name] for name in DECIDING} | {"judge": judge, "teaching": teaching._asdict()}
    return facts | captioned_facts(config)


def make_kind(facts: Facts) -> Kind:
    """The kind that the facts name, which has learnt nothing yet."""
    if facts["kind"] == "retrieval":
        return Retrieval(facts["threshold"])
    if facts["kind"] == "classification":
        return Classification(Teaching(**facts["teaching"]), facts["threshold"])
    return Ranking(Teaching(**facts["teaching"]), facts["floor"], facts["normalise"])
