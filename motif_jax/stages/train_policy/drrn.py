"""A policy that is a DRRN, and its learner, as the config names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.envs.world import World
from motif_jax.learner.q_learning import QState, init_q_state, make_q_update
from motif_jax.learner.replay import make_replay
from motif_jax.learner.settings import ReplaySettings, Settings
from motif_jax.learner.update import ShapeRewards
from motif_jax.networks.kinds import DRRN
from motif_jax.policies.drrn_settings import SECTION
from motif_jax.policies.model import Model, make_policy_model
from motif_jax.structs import UserError
from motif_jax.tokens import WordTokeniser


def make_drrn_policy(config: ConfigDict, world: World) -> tuple[dict[str, Any], Model]:
    """The options of the network, as checkpoints hold them, and the network with its first parameters.

    Its tokens are the words of the world.
    """
    section = config.policy
    if not (words := getattr(world, "words", ())):
        raise UserError(
            f"the world {world.name!r} does not say which words its prompts have, which the network {DRRN!r} needs "
            "(--config.policy.network, --config.env.world)"
        )
    options: dict[str, Any] = {
        "network": DRRN,
        "num_actions": len(world.action_names),
        "dtype": section.dtype,
        DRRN: {
            "tokeniser": WordTokeniser.from_texts([*words, *world.action_names]).text,
            "actions": list(world.action_names),
            **section[SECTION].to_dict(),
        },
    }
    return options, make_policy_model(options, config.seed)


def make_q_learner(
    config: ConfigDict, model: Model, world: World, mesh: Mesh, learner: Settings, shape_rewards: ShapeRewards
) -> tuple[Callable[[Any], QState], Callable[..., Any]]:
    """What makes the learner's state from parameters, and its update; the buffer is a part of the state."""
    section = config.policy
    if mesh.size > 1:
        raise UserError(
            f"the algorithm {learner.algorithm!r} learns on one device, and here are {mesh.size} "
            "(--config.policy.num_devices=1)"
        )
    settings = ReplaySettings(**section.replay.to_dict())
    games = section.batch_size // section.rollout_length
    rows = {name: np.zeros((1, 1, *world.specs[name].shape), world.specs[name].dtype) for name in model.reads}
    encoded = {name: jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for name, array in model.encode(rows).items()}

    def begin(params: Any) -> QState:
        replay = make_replay(settings.capacity // section.batch_size, section.rollout_length, games, encoded)
        return init_q_state(params, learner, replay)

    return begin, make_q_update(model.unroll, shape_rewards, learner, settings, config.seed)
