"""A policy network as functions of its parameters, new or from a checkpoint, and the player that acts with it.

The player acts on the device for any number of games at a time, and keeps their recurrent states there.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from motif_jax.envs.world import WAIT, ActionSpace, space_from
from motif_jax.envs.worlds import make_world
from motif_jax.networks.actions import CHOICES, OptionHeads, draw
from motif_jax.networks.kinds import BEHAVIOUR, find_prompt_network, from_record, is_own
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.rewards.registry import Weights, mixtures
from motif_jax.rewards.source import PATHS, RewardSources, sources_from
from motif_jax.structs import ArraySpec, UserError
from motif_jax.system.metrics import Timers

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
        if is_release(directory) and "reads" in spec:  # its JSON is sorted; the network joins features in this order
            env = metadata["config"]["env"]
            order = spec.get("order") or ([] if owner(env) else make_world(env).reads)  # older ones do not name it
            if sorted(order) != sorted(spec["reads"]):
                raise UserError(f"{str(directory)!r} lacks the order of observations: export it again (--stage=export)")
            spec = {**spec, "reads": {name: spec["reads"][name] for name in order}}
        network = find_prompt_network(name)
        if actions and network and network.scores_names(spec):  # they can be renamed
            spec = {**spec, "num_actions": len(actions), name: {**spec[name], "actions": list(actions)}}
        model = make_policy_model(spec, None)
        params = rebuild(model.params, leaves_by_path(saved["learner"]["params"]), directory)
        frozen = rebuild(model.frozen, leaves_by_path(saved.get("frozen", ())), directory)
        built_in = [name for name, one in metadata["sources"].items() if one["class"] in PATHS]
        arrays = {name: array for name, array in saved.get("sources", {}).items() if name in built_in}
        check_parameters({"sources": arrays}, directory)  # arrays of users' sources may have any value
        return model._replace(params=params, frozen=frozen), metadata, sources_from(metadata, saved, trusted)


# ---- the player

Acted = tuple[np.ndarray, dict[str, Any]]  # actions and outputs of a call, see `actors.acting.BatchedPolicy`
EXACT = 8  # calls for up to this many groups are not padded; larger ones are padded to a power of two


class PlayerParameters(NamedTuple):
    """Parameters for `PolicyPlayer`, in a plain tuple, because flattening a tree takes longer than a call."""

    leaves: tuple[Any, ...]  # of the tree (params, frozen, prepared)
    version: int  # number of training updates of the parameters


class PolicyPlayer:
    """An `actors.acting.BatchedPolicy` that acts for all requesting games in one compiled step."""

    def __init__(
        self, model: Model, num_games: int, group_size: int, seed: int, greedy: bool = False,
        only: int | Weights | None = None,
    ):  # fmt: skip
        """Starts every game with an empty recurrent state, and uses the model's parameters until `swap`.

        `num_games`, `group_size`: of the pool, and of each of its groups. `greedy`: take the most probable action
        instead of sampling. `only`: the option or the mixture that plays alone; None: the controller chooses.
        """
        self.reads, self._encode = model.reads, model.encode
        heads = model.options
        number = ArraySpec((), "int32")
        outputs = sum(heads.sizes) if heads else model.num_actions
        self._results = results = {
            "action": model.space.spec if model.space else number, "logits": ArraySpec((outputs,), "float32"),
            "value": ArraySpec((), "float32"), **dict.fromkeys(CHOICES if heads else (), number),
        }  # fmt: skip
        self._record = np.dtype([(name, spec.dtype, spec.shape) for name, spec in results.items()])  # of a game
        self.outputs = {name: spec for name, spec in results.items() if name != "action"} | {"version": number}
        self.starts = {"core": ArraySpec((model.core_size,), "float32")}
        self.timers = Timers()  # the owner may replace these by its own
        self._prepare = jax.jit(model.prepare)
        self._frozen = jax.device_put(model.frozen)
        self._played = self.prepare(model.params, 0)
        self._coming: collections.deque[PlayerParameters] = collections.deque()
        self._apart = jax.default_backend() != "cpu"  # inputs and results are transferred
        self._num_games, self._group_size = num_games, group_size
        self._cores: Any = jnp.zeros((num_games + 1, model.core_size))  # the last row is for padding
        if heads:
            self._cores = (self._cores, *jnp.zeros((2, num_games + 1), jnp.int32))
        self._key, self.calls = jax.random.key(seed), 0  # the number of calls, which numbers the random draws

        def step(
            leaves: tuple[jax.Array, ...], memory: Any, key: jax.Array, sent: Any, layout: Layout | None
        ) -> tuple[Any, jax.Array, jax.Array]:
            weights = jax.tree.unflatten(self._structure, leaves)
            inputs = unpack(sent, layout) if layout else sent
            if heads:
                memory, before, *made = play_turn(model.step, heads, only, greedy, weights, memory, key, *inputs)
            else:
                memory, before, *made = play_step(model.step, model.space, greedy, weights, memory, key, *inputs)
            return memory, before, join(made, [spec.dtype for spec in results.values()])

        self._step = jax.jit(step, donate_argnums=1, static_argnums=4)

    def prepare(self, params: Any, version: int, frozen: Any = None) -> PlayerParameters:
        """Prepares parameters for `swap`; `frozen` defaults to the frozen parameters of the player's model."""
        frozen = self._frozen if frozen is None else frozen
        leaves, self._structure = jax.tree.flatten((params, frozen, self._prepare(params, frozen)))
        return PlayerParameters(tuple(leaves), version)

    def swap(self, played: PlayerParameters, wait: bool) -> None:
        """Replaces the parameters once they are on the device; `wait`: waits for this. For one thread only."""
        if wait:
            jax.block_until_ready(played.leaves)
        self._coming.append(played)

    def room(self, count: int) -> int:
        return padded_size(count, self._group_size)

    def __call__(self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray) -> Acted:
        return self.start(observations, first, games)()

    def start(self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray) -> Callable[[], Acted]:
        """Starts a call on the device, and returns the function that waits for its results."""
        while self._coming and all(  # in order, so that a busy learner delays no call
            leaf.is_ready() for leaf in self._coming[0].leaves if hasattr(leaf, "is_ready")
        ):
            self._played = self._coming.popleft()
        leaves, version = self._played
        count = len(games)
        size = self.room(count)
        if size > len(first):
            observations = {key: _pad(array, size, 0) for key, array in observations.items()}
            first = _pad(first, size, True)
        if size > count:
            first[count:] = True
            for array in observations.values():
                array[count:] = array[:1]  # a row like the others, with which a prompt shares its beginning
            games = _pad(games, size, self._num_games)
        with self.timers("encode"):
            inputs = self._encode(observations)
        call = np.int32(self.calls), inputs, first, games
        sent, layout = pack(call) if self._apart else (call, None)
        self._cores, before, made = self._step(leaves, self._cores, self._key, sent, layout)
        if self._apart:
            made.copy_to_host_async()  # the device sends the results as soon as it has them
        self.calls += 1

        def finish() -> Acted:
            with self.timers("wait_for_device"):
                rows = np.asarray(made).view(self._record)[:count, 0]
            outputs: dict[str, Any] = {name: rows[name] for name in self._results}
            outputs |= {"version": np.full(count, version, np.int32), "core": before}
            return outputs.pop("action"), outputs

        return finish


# ---- one array each way: to a GPU every array is a transfer of its own, and every result that is read a wait
# (for a CPU the inputs are left as they are: joining them costs more there)

Layout = tuple[Any, tuple[tuple[tuple[int, ...], np.dtype], ...]]  # a tree, and shape and type of each of its arrays


def pack(tree: Any) -> tuple[np.ndarray, Layout]:
    """Returns all arrays of a tree as bytes, one after the other, and what `unpack` needs to know of them."""
    leaves, structure = jax.tree.flatten(tree)
    types = [jax.dtypes.canonicalize_dtype(leaf.dtype) for leaf in leaves]
    sent = b"".join([np.ascontiguousarray(leaf, dtype) for leaf, dtype in zip(leaves, types, strict=True)])
    return np.frombuffer(sent, np.uint8), (structure, tuple(zip([leaf.shape for leaf in leaves], types, strict=True)))


def unpack(sent: jax.Array, layout: Layout) -> Any:
    """The tree, on the device."""
    arrays, start = [], 0
    for shape, dtype in layout[1]:
        part = sent[start : (start := start + dtype.itemsize * math.prod(shape))]
        if dtype.kind == "b":
            arrays.append(part.reshape(shape) != 0)
        else:
            width = (dtype.itemsize,) if dtype.itemsize > 1 else ()
            arrays.append(jax.lax.bitcast_convert_type(part.reshape(shape + width), dtype))
    return jax.tree.unflatten(layout[0], arrays)


def join(arrays: Sequence[jax.Array], types: Sequence[str]) -> jax.Array:
    """The fields of a record of 32-bit numbers, side by side. [B, number of columns] int32"""
    rows = [array.reshape(len(array), -1).astype(dtype) for array, dtype in zip(arrays, types, strict=True)]
    return jnp.concatenate([jax.lax.bitcast_convert_type(row, jnp.int32) for row in rows], 1)


def padded_size(count: int, group_size: int) -> int:
    """The padded number of games of a call for `count` games; the step is compiled once for each.

    Whole groups are padded to a power of two of groups if more than EXACT, any other count to a power of two.
    """
    groups, rest = divmod(count, group_size)
    if rest:
        return 1 << (count - 1).bit_length()
    return group_size * (groups if groups <= EXACT else 1 << (groups - 1).bit_length())


def play_step(
    step: Callable, space: ActionSpace | None, greedy: bool, weights: tuple[Any, Any, Any], cores: jax.Array,
    key: jax.Array, call: jax.Array, observations: dict[str, jax.Array], first: jax.Array, games: jax.Array,
) -> tuple[jax.Array, ...]:  # fmt: skip
    """Acts once in some games, with `weights` = (params, frozen, prepared).

    Returns the recurrent states of all games, the previous states of these games, actions, logits, values.
    """
    before = cores[games]
    params, frozen, prepared = weights
    logits, values, after = step(params, frozen, observations, first, before, prepared)
    actions = draw(space, jax.random.fold_in(key, call), logits, greedy)
    return cores.at[games].set(after), before, actions, logits, values


def play_turn(
    step: Callable, heads: OptionHeads, only: int | Weights | None, greedy: bool, weights: tuple[Any, Any, Any],
    memory: tuple[jax.Array, ...], key: jax.Array, call: jax.Array, observations: dict[str, jax.Array],
    first: jax.Array, games: jax.Array,
) -> tuple[Any, ...]:  # fmt: skip
    """As `play_step`, for a policy with options, whose games WAIT while the controller decides.

    `memory`: of the network [N, core_size]; who is in charge of the next step, and game steps until the controller is,
    [N] int32 each. After the values it returns the choices, in the order of CHOICES.
    """
    before, in_charge, steps_left = (array[games] for array in memory)
    charge = jnp.where(first, heads.options, in_charge)
    mixture = only if isinstance(only, tuple) else None
    if only is not None:
        charge = jnp.full_like(charge, only if isinstance(only, int) else 0)
    params, frozen, prepared = weights
    seen = {**observations, BEHAVIOUR: heads.behaviour(charge, mixture)}
    logits, values, after = step(params, frozen, seen, first, before, prepared)
    key, drawn = jax.random.fold_in(key, call), []
    for number, head in enumerate(heads.split(logits)):
        drawn.append(draw(None, jax.random.fold_in(key, number), head, greedy))
    action, (option, length) = drawn[0], heads.joint(drawn[1:])
    decides = charge == heads.options
    left = jnp.where(decides, jnp.array(heads.lengths, jnp.int32)[length], steps_left - 1)
    following = jnp.where(decides, option, jnp.where(left > 0, charge, heads.options))
    changed = zip(memory, (after, following, left), strict=True)
    memory = tuple(array.at[games].set(rows) for array, rows in changed)
    actions = jnp.where(decides, WAIT, action)
    return memory, before, actions, logits, values, charge, following, action, option, length


def _pad(array: np.ndarray, size: int, value: Any) -> np.ndarray:
    missing = size - len(array)
    return np.concatenate([array, np.full((missing, *array.shape[1:]), value, array.dtype)]) if missing else array


class EpisodePlayer(PolicyPlayer):
    """For grpo and gigpo: plays one episode of each game in a rollout, after which the game waits for the others.

    The network does not read games that wait.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._begins, self._over = np.zeros((2, self._num_games), bool)

    def begin(self, games: np.ndarray) -> None:
        self._begins[games] = True

    def __call__(self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray) -> Acted:
        begins = self._begins[games]
        over = (self._over[games] | first[: len(games)]) & ~begins
        first[: len(games)] |= begins  # a game that waited for the others shows its episode's first observation again
        self._over[games], self._begins[games] = over, False
        if not over.any():
            return super().__call__(observations, first, games)
        actions = np.full(len(games), WAIT, np.int32)
        specs = self.outputs | self.starts
        outputs: dict[str, Any] = {name: np.zeros((len(games), *one.shape), one.dtype) for name, one in specs.items()}
        outputs["version"][:] = self._played.version
        plays = np.flatnonzero(~over)
        if len(plays):
            some = {name: array[plays] for name, array in observations.items()}
            actions[plays], played_outputs = super().__call__(some, first[plays], games[plays])
            for name, array in played_outputs.items():
                outputs[name][plays] = np.asarray(array)[: len(plays)]
        return actions, outputs
