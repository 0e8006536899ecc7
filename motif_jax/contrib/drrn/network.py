"""What the names `drrn` and `q_learning` stand for. JAX is loaded, with the module `q_learning`, to make something."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.contrib.drrn.sections import DRRN, Q_LEARNING
from motif_jax.envs.world import World
from motif_jax.learner.settings import Algorithm
from motif_jax.networks.kinds import PromptNetwork
from motif_jax.structs import UserError
from motif_jax.tokens import WordTokeniser


def check_together(section: Any) -> None:
    """Raises UserError if DRRN and Q-learning are not used together."""
    if (section.network, section.algorithm) != (DRRN, Q_LEARNING):
        both = f"the network {DRRN!r} and the algorithm {Q_LEARNING!r} are only used together"
        raise UserError(f"{both} (--config.policy.network, .algorithm)")


class Drrn(PromptNetwork):
    """The network `drrn`; its tokens are the words of the world."""

    def check(self, config: Any) -> None:
        check_together(config.policy)

    def start(self, config: Any, world: World, workdir: Path) -> tuple[dict[str, Any], Any]:
        from motif_jax.policies.model import make_policy_model

        section = config.policy
        if not (words := getattr(world, "words", ())):
            problem = f"the network {DRRN!r} needs the words of prompts, which the world {world.name!r} does not list"
            raise UserError(f"{problem} (--config.policy.network, --config.env.world)")
        names = list(world.action_names)
        values = config.plugins[DRRN]
        own = {"tokeniser": WordTokeniser.from_texts([*words, *names]).text, "actions": names}
        own |= {"width": values.width, "max_tokens": values.max_tokens}
        spec: dict[str, Any] = {"network": DRRN, "num_actions": len(names), "dtype": section.dtype, DRRN: own}
        return spec, make_policy_model(spec, config.seed)

    def fields(self, spec: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
        from motif_jax.contrib.drrn.q_learning import drrn_policy_fields

        return drrn_policy_fields(spec, seed)


class QLearning(Algorithm):
    """The algorithm `q_learning`."""

    own_minibatches = True  # from the replay buffer

    def check(self, config: Any, limit: int, hosts: int) -> None:
        check_together(config.policy)
        if config.plugins[DRRN].capacity < config.policy.batch_size:
            raise UserError("a replay must have room for a batch (--config.drrn.capacity, --config.policy.batch_size)")
        if config.policy.bootstrap == "inferred":
            raise UserError("q_learning infers no values: choose explicit or never (--config.policy.bootstrap)")

    def splits_steps(self, config: Any, memory: bool) -> bool:
        return True

    def make_learner(self, config: Any, world: World, learning: Any) -> tuple[Any, Any]:
        """See `Algorithm`; the replay buffer is a part of the state."""
        from motif_jax.contrib.drrn.q_learning import make_q_learner

        return make_q_learner(config, world, learning)
