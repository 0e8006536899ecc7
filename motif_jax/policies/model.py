"""A policy network as functions of its parameters, new or from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.devices.checkpoints import find_saved, read_saved
from motif_jax.devices.mesh import Rules
from motif_jax.devices.parameters import check_parameters, leaves_by_path, rebuild
from motif_jax.devices.releases import is_release, usable
from motif_jax.envs.own_code import owner
from motif_jax.envs.world import ActionSpace, space_from
from motif_jax.envs.worlds import make_world
from motif_jax.networks.actions import OptionHeads
from motif_jax.networks.kinds import find_prompt_network, from_record, is_own
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.rewards.registry import mixtures
from motif_jax.rewards.sources import PATHS, RewardSources, sources_from
from motif_jax.structs import UserError

Observations = Mapping[str, Any]


class Model(NamedTuple):
    """A policy network as functions of its parameters.

    All parameters are arguments of the functions, so a compiled program never contains their values.
    """

    params: Any  # trained parameters, initial or from a checkpoint
    prepare: Callable[[Any, Any], Any]  # (params, frozen) -> values that `step` needs, computed once per update
    # (params, frozen, observations, first, core, prepared) -> (logits, values, core)
    step: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]
    unroll: Callable[..., tuple[jax.Array, jax.Array]]  # (params, frozen, observations, first, core): update.Unroll
    reads: tuple[str, ...]  # names of the observations
    core_size: int  # size of the recurrent state per game; 0 for a network without one
    num_actions: int  # outputs for an action
    frozen: Any = ()  # parameters that are not trained
    rules: Rules = ()  # sharding of the parameters, where the default of `mesh.shardings` does not fit
    # on the host: the world's observations -> the inputs of `step` and `unroll`
    encode: Callable[[Observations], Observations] = lambda observations: observations
    # on the host, for a batch of the learner: (encoded observations, the number of the call of `unroll` that reads each
    # step) -> the same, laid out so that the calls take less work
    pack: Callable[[Observations, np.ndarray], Observations] | None = None
    chunk: int = 0  # prompts that `unroll` reads at a time; 0: all
    options: OptionHeads | None = None  # of a policy with options
    space: ActionSpace | None = None  # of actions that are several choices or numbers


def make_policy_model(spec: Mapping[str, Any], seed: int | None) -> Model:
    """Makes a network; its `nnx.Param` are trained, its other variables are `frozen`.

    `spec`: network, num_actions, dtype; for networks that are made from specs, also `reads`, the specs of their
    observations by name; for a policy with options, `options` (`OptionPlan.record`); for actions of several choices or
    numbers, `action_space` (`ActionSpace.record`); for networks that read prompts, under their name, see
    language_policy.py and contrib/drrn/q_learning.py. `seed`: None: a checkpoint will replace the initial parameters.
    """
    if network := find_prompt_network(spec["network"]):
        return Model(**network.fields(spec, seed))
    specs, plan, actions = from_record(spec.get("reads", {})), spec.get("options"), spec["num_actions"]
    heads = heads_of(plan, actions) if plan else None
    outputs, behaviours = (sum(heads.sizes), heads.behaviours) if heads else (actions, 0)

    def make() -> PolicyNetwork:
        dtype, rngs = jnp.dtype(spec["dtype"]), nnx.Rngs(seed or 0)
        return PolicyNetwork(spec["network"], outputs, specs=specs, behaviours=behaviours, dtype=dtype, rngs=rngs)

    own = is_own(spec["network"])  # a user's code may compute with arrays to make sizes
    module = make() if own else nnx.eval_shape(make)
    graph, params, *rest = nnx.split(module, nnx.Param, ...)
    if seed is not None and not own:
        # As one program, which is kept compiled: the thirty small ones of its layers took half of the time to start.
        params, *rest = jax.jit(lambda: nnx.split(make(), nnx.Param, ...)[1:])()
    (frozen,) = rest

    def step(params: Any, frozen: Any, *inputs: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        return nnx.merge(graph, params, frozen).step(*inputs)

    def unroll(params: Any, frozen: Any, *inputs: Any) -> tuple[jax.Array, jax.Array]:
        return nnx.merge(graph, params, frozen).unroll(*inputs)

    def prepare(params: Any, frozen: Any) -> Any:
        return nnx.merge(graph, params, frozen).prepare()

    sizes = module.core_size, actions
    return Model(params, prepare, step, unroll, module.reads, *sizes, frozen, options=heads, space=space_from(spec))


def heads_of(plan: Mapping[str, Any], actions: int) -> OptionHeads:
    """The heads for a checkpoint's plan of options (`OptionPlan.record`)."""
    names, lengths, coefficients = plan["names"], tuple(plan["lengths"]), plan.get("coefficients", ())
    if not coefficients:
        return OptionHeads(actions, len(names), lengths)
    weights = mixtures(tuple(coefficients), len(names), plan["sum_to_one"])
    return OptionHeads(actions, len(weights), lengths, weights, len(coefficients))


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The softmax over the last axis, on the host and in the type of the logits. [..., A]"""
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def read_policy(
    path: str | Path, which: str = "last", trusted: Iterable[str] = (), actions: tuple[str, ...] = ()
) -> tuple[Model, dict[str, Any], RewardSources]:
    """Reads a policy, its metadata, and its reward sources, from a workdir, checkpoints or a release alone.

    `which`: "last", or the number of a checkpoint. `trusted`: classes of users (module:Class) that may be imported.
    `actions`: names of actions, replacing those of training in a network that reads names.
    """
    directory = find_saved(Path(path), "policy")
    _, saved, metadata = read_saved(directory, "policy", which)
    if "learner" not in saved:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of a policy")
    trusted = tuple(trusted)
    with usable(directory):
        spec = metadata["model"]
        if is_own(name := spec["network"]) and name not in trusted:
            raise UserError(
                f"the policy in {str(path)!r} has the network {name!r}, which is imported only if you name it "
                f"(--config.policy.network={name}; load_policy(..., trusted=[{name!r}]))"
            )
        if is_release(directory) and "reads" in spec:
            spec = {**spec, "reads": reads_in_order(spec, metadata["config"]["env"], directory)}
        network = find_prompt_network(name)
        if actions and network and network.scores_names(spec):  # they can be renamed
            spec = with_actions(spec, actions)
        model = make_policy_model(spec, None)
        params = rebuild(model.params, leaves_by_path(saved["learner"]["params"]), directory)
        frozen = rebuild(model.frozen, leaves_by_path(saved.get("frozen", ())), directory)
        built_in = [name for name, one in metadata["sources"].items() if one["class"] in PATHS]
        arrays = {name: array for name, array in saved.get("sources", {}).items() if name in built_in}
        check_parameters({"sources": arrays}, directory)  # arrays of users' sources may have any value
        return model._replace(params=params, frozen=frozen), metadata, sources_from(metadata, saved, trusted)


def reads_in_order(spec: Mapping[str, Any], env: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """A release's observations in the order in which the network joins their features; its JSON is sorted."""
    reads, order = spec["reads"], spec.get("order", ())
    if not order and owner(env) is None:  # older releases do not name it
        order = make_world(env).reads
    if sorted(order) != sorted(reads):
        raise UserError(
            f"the release in {str(directory)!r} does not tell the order of its policy's observations: export it again "
            "(--stage=export)"
        )
    return {name: reads[name] for name in order}


def with_actions(spec: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The spec of the same policy with other names of actions."""
    network = spec["network"]
    return {**spec, "num_actions": len(names), network: {**spec[network], "actions": list(names)}}
