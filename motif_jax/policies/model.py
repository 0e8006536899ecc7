"""A policy network as functions of its parameters, new or from a checkpoint, and the player that acts with it.

The player acts on the device for any number of games at a time, and keeps their recurrent states there. `load_policy`
returns a `Policy` for notebooks and scripts.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.config.table import shown
from motif_jax.devices.checkpoints import read_saved
from motif_jax.devices.mesh import Rules
from motif_jax.devices.parameters import check_parameters, leaves_by_path, rebuild
from motif_jax.devices.releases import find_saved, is_release, usable
from motif_jax.envs.own_code import owner
from motif_jax.envs.world import ActionSpace, World, plain_shape, select_specs, space_of, waited
from motif_jax.envs.worlds import make_world
from motif_jax.learner.acting import ALONE, CHOOSER, Acting, acting_of
from motif_jax.networks.actions import draw
from motif_jax.networks.kinds import BY_SPECS, FIXED, find_prompt_network, from_record, is_own, to_record
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.rewards.learnt_source import Reward
from motif_jax.rewards.registry import is_built_in
from motif_jax.rewards.source import RewardSources, sources_from
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
    acting: Acting = ALONE  # what chooses the actions from the outputs

    @property
    def space(self) -> ActionSpace | None:
        """The space of actions that are several choices or numbers."""
        return self.acting.space


def make_policy_model(spec: Mapping[str, Any], seed: int | None) -> Model:
    """Makes a network; its `nnx.Param` are trained, its other variables are `frozen`.

    `spec`: network, num_actions, dtype; for networks that are made from specs, also `reads`, the specs of their
    observations by name; for actions of several choices or numbers, `action_space` (`ActionSpace.record`); what acts
    in another way (`Acting.record`) and networks that read prompts have their own under their names. `seed`: None: a
    checkpoint will replace the initial parameters.
    """
    acting = acting_of(spec)
    if network := find_prompt_network(spec["network"]):
        return Model(**network.fields(spec, seed), acting=acting)
    specs, actions = from_record(spec.get("reads", {})), spec["num_actions"]
    outputs, behaviours = actions + acting.more_outputs, acting.behaviours

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
    return Model(params, prepare, step, unroll, module.reads, *sizes, frozen, acting=acting)


def start_policy_model(config: Any, world: World, workdir: Path, acting: Acting | None) -> tuple[dict[str, Any], Model]:
    """The spec of the network that a config names, as checkpoints hold it, and the network with initial parameters.

    `acting`: of the config, what acts with it; None: the policy alone.
    """
    section = config.policy
    if network := find_prompt_network(section.network):
        return network.start(config, world, workdir)
    space = space_of(world)
    actions = space.outputs if space else len(world.action_names)
    spec: dict[str, Any] = {"network": section.network, "num_actions": actions, "dtype": section.dtype}
    spec |= {"action_space": space.record()} if space else {}
    spec |= acting.record if acting else {}
    if section.network in BY_SPECS or is_own(section.network):
        spec["reads"] = to_record({name: world.specs[name] for name in world.reads})
    model = make_policy_model(spec, config.seed)
    return spec, model._replace(acting=acting or model.acting)


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
                raise UserError(f"{str(directory)!r} lacks the order of observations: an older version released it")
            spec = {**spec, "reads": {name: spec["reads"][name] for name in order}}
        network = find_prompt_network(name)
        if actions and network and network.scores_names(spec):  # they can be renamed
            spec = {**spec, "num_actions": len(actions), name: {**spec[name], "actions": list(actions)}}
        model = make_policy_model(spec, None)
        params = rebuild(model.params, leaves_by_path(saved["learner"]["params"]), directory)
        frozen = rebuild(model.frozen, leaves_by_path(saved.get("frozen", ())), directory)
        built_in = [name for name, one in metadata["sources"].items() if is_built_in(one["class"])]
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

    def __init__(self, model: Model, num_games: int, group_size: int, seed: int, greedy: bool = False):
        """Starts every game with an empty recurrent state, and uses the model's parameters until `swap`.

        `num_games`, `group_size`: of the pool, and of each of its groups. `greedy`: take the most probable action
        instead of sampling.
        """
        self.reads, self._encode = model.reads, model.encode
        acting, number = model.acting, ArraySpec((), "int32")
        results = {
            "action": model.space.spec if model.space else number,
            "logits": ArraySpec((model.num_actions + acting.more_outputs,), "float32"),
            "value": ArraySpec((), "float32"),
            **acting.recorded,
        }
        self._record = np.dtype([(name, spec.dtype, spec.shape) for name, spec in results.items()])  # of a game
        self.outputs = {name: spec for name, spec in results.items() if name != "action"} | {"version": number}
        self.starts, self.waits = {"core": ArraySpec((model.core_size,), "float32")}, acting.waits
        self.timers = Timers()  # the owner may replace these by its own
        self._prepare, self._frozen = jax.jit(model.prepare), jax.device_put(model.frozen)
        self._played = self.prepare(model.params, 0)
        self._coming: collections.deque[PlayerParameters] = collections.deque()
        self._apart = jax.default_backend() != "cpu"  # inputs and results are transferred
        self._num_games, self._group_size = num_games, group_size
        kept = jnp.zeros((acting.remembers, num_games + 1), jnp.int32)
        self._memory: Any = jnp.zeros((num_games + 1, model.core_size)), *kept  # the last row is for padding
        self._key, self.calls = jax.random.key(seed), 0  # the number of calls, which numbers the random draws
        acts = functools.partial(play, model.step, acting, greedy)

        def step(
            leaves: tuple[jax.Array, ...], memory: Any, key: jax.Array, sent: Any, layout: Layout | None
        ) -> tuple[Any, jax.Array, jax.Array]:
            weights = jax.tree.unflatten(self._structure, leaves)
            memory, before, *made = acts(weights, memory, key, *(unpack(sent, layout) if layout else sent))
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
        self._memory, before, made = self._step(leaves, self._memory, self._key, sent, layout)
        if self._apart:
            made.copy_to_host_async()  # the device sends the results as soon as it has them
        self.calls += 1

        def finish() -> Acted:
            with self.timers("wait_for_device"):
                rows = np.asarray(made).view(self._record)[:count, 0]
            outputs: dict[str, Any] = {name: rows[name] for name in self._record.names or ()}
            outputs |= {"version": np.full(count, version, np.int32), "core": before}
            return outputs.pop("action"), outputs

        return finish


def padded_size(count: int, group_size: int) -> int:
    """The padded number of games of a call for `count` games; the step is compiled once for each.

    Whole groups are padded to a power of two of groups if more than EXACT, any other count to a power of two.
    """
    groups, rest = divmod(count, group_size)
    if rest:
        return 1 << (count - 1).bit_length()
    return group_size * (groups if groups <= EXACT else 1 << (groups - 1).bit_length())


def play(
    step: Callable, acting: Acting, greedy: bool, weights: tuple[Any, Any, Any], memory: Any, key: jax.Array,
    call: jax.Array, observations: dict[str, jax.Array], first: jax.Array, games: jax.Array,
) -> tuple[Any, ...]:  # fmt: skip
    """Acts once in some games, with `weights` = (params, frozen, prepared).

    `memory`: of all games, the recurrent states [N, core_size], and what `acting` keeps, [N] int32 each. Returns the
    new memory, the previous recurrent states of these games, actions, logits, values, and what else is recorded.
    """
    params, frozen, prepared = weights
    key = jax.random.fold_in(key, call)
    before, *kept = (array[games] for array in memory)

    def look(seen: Mapping[str, Any]) -> tuple[jax.Array, jax.Array, jax.Array]:
        return step(params, frozen, seen, first, before, prepared)

    def choose(logits: jax.Array, number: int | None) -> jax.Array:
        if number is None:
            return draw(acting.space, key, logits, greedy)
        return draw(None, jax.random.fold_in(key, number), logits, greedy)

    made, after = acting.act(look, choose, observations, first, kept)
    memory = tuple(array.at[games].set(rows) for array, rows in zip(memory, after, strict=True))
    return memory, before, *made


def _pad(array: np.ndarray, size: int, value: Any) -> np.ndarray:
    missing = size - len(array)
    return np.concatenate([array, np.full((missing, *array.shape[1:]), value, array.dtype)]) if missing else array


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


# ---- for notebooks and scripts: a policy plays one game, or many at once

BYTES = ArraySpec((), "uint8")  # of a prompt


class Act(NamedTuple):
    """The policy's answer to the observations of one game, or of B games."""

    action: int | np.ndarray  # [] or [B]; several choices or numbers: [D] or [B, D]
    probabilities: np.ndarray | None  # of all actions, [A] or [B, A]; None for several choices or numbers
    value: float | np.ndarray  # expected sum of discounted rewards. [] or [B]
    chooser: str | list[str] = ""  # of `Acting.names`, who chose the action; "" if there is only one


class Policy:
    """A trained policy. Call it with each observation; `metadata` describes its training.

    env = gymnasium.make("motif_jax/NetHackScore-v1")   # after `import motif_jax.envs`
    policy = load_policy("runs/score")
    observation, _ = env.reset(seed=7)
    policy.begin()                                      # a new episode: resets the recurrent state
    observation, *_ = env.step(policy(observation).action)

    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    many = gymnasium.make_vec("motif_jax/NetHackScore-v1", 16, vector_kwargs=mode)
    observations, _ = many.reset(seed=7)
    policy.begin(16)                                    # sixteen games: from now on, answers are arrays
    observations, _, ended, cut, _ = many.step(policy(observations).action)
    policy.restart(ended | cut)                         # new episodes in these games
    """

    def __init__(self, model: Model, metadata: Mapping[str, Any], reward: Reward | None, seed: int = 0):
        self.metadata, self.reward, self.acting = dict(metadata), reward, model.acting
        self.reads: tuple[str, ...] = model.reads  # names of the observations
        spec, self._encode = metadata["model"], model.encode
        self._specs = from_record(spec.get("reads", {}))  # empty: a prompt, of any length
        if spec["network"] in FIXED:  # NetHack's frames
            self._specs = select_specs(make_world({}).specs, self.reads)
        self._weights, self._core_size = jax.device_put((model.params, model.frozen)), model.core_size
        self._num_actions = model.num_actions
        self._prepared = jax.jit(model.prepare)(*self._weights)
        self._step = jax.jit(model.step)
        self._rng = np.random.default_rng(seed)
        self.begin()

    def __repr__(self) -> str:
        model, task = self.metadata["model"], self.metadata.get("config", {}).get("env", {}).get("task")
        steps = self.metadata.get("progress", {}).get("env_steps")
        words = f"network={model['network']!r} num_actions={model['num_actions']} reads={list(self.reads)}"
        words += (f" task={task!r}" if task else "") + (f" env_steps={steps:,}" if steps else "")
        return f"<Policy {words} reward={self.reward is not None}>"

    def begin(self, games: int | None = None) -> None:
        """Starts new episodes: resets the recurrent state.

        `games`: the number of games played at once; observations and answers are arrays of this length. None: one game,
        with single observations and answers.
        """
        self._games, count = games, 1 if games is None else games
        kept = np.zeros((self.acting.remembers, count), np.int32)
        self._memory: list[np.ndarray] = [np.zeros((count, self._core_size), np.float32), *kept]
        self._first = np.ones(count, bool)

    def restart(self, which: np.ndarray) -> None:
        """Starts new episodes in the games where `which` is true. [B] bool"""
        which = np.asarray(which)
        if which.dtype != bool or which.shape != self._first.shape:
            raise TypeError(f"restart takes an array of {len(self._first)} bool, one per game, not {which!r}")
        self._first = self._first | which

    def __call__(self, observation: Mapping[str, Any], greedy: bool = False) -> Act:
        """Chooses an action for an observation; after `begin(games)`, for each game.

        One game: arrays as the environments of `motif_jax.envs` return them, or in the shapes of `World.specs`; a
        prompt may also be a `str`. Many games: arrays with one more leading axis, as gymnasium's vector environments
        return them, or a list with one entry per game. Names beyond `reads` are ignored. `greedy`: take the most
        probable action instead of sampling one.
        """
        if missing := {*self.reads} - observation.keys():
            raise TypeError(f"this policy also reads {', '.join(sorted(missing))}")
        seen = self._encode({name: self._read(name, observation[name]) for name in self.reads})
        due, made = np.ones_like(self._first), dict[str, np.ndarray]()  # games that have no action yet; the answers
        while due.any():
            for name, array in self._act(seen, due, greedy).items():
                made[name] = np.where(_beside(due, array), array, made.get(name, array))
            due = due & waited(made["action"][None])[0]
        odds = None if self.acting.space else _odds(made["logits"][:, : self._num_actions])
        names = [self.acting.names[number] for number in made[CHOOSER]] if CHOOSER in made else ""
        actions, values = made["action"], made["value"]
        if self._games is not None:
            return Act(actions, odds, values, names)
        action, of_one = (actions[0], None) if odds is None else (int(actions[0]), odds[0])
        return Act(action, of_one, float(values[0]), names[0] if names else "")

    def _act(self, seen: Mapping[str, Any], due: np.ndarray, greedy: bool) -> dict[str, np.ndarray]:
        """What acts in all games chooses and records, by name; updates the memory of the games in `due` [B]."""
        core, *kept = self._memory

        def look(observations: Mapping[str, Any]) -> tuple[jax.Array, jax.Array, jax.Array]:
            return self._step(*self._weights, observations, self._first, core, self._prepared)

        def choose(logits: jax.Array, number: int | None) -> Any:
            if number is None and self.acting.space:
                return draw(self.acting.space, jax.random.key(self._rng.integers(2**31)), logits, greedy)
            odds = _odds(logits)
            return odds.argmax(-1) if greedy else np.array([self._rng.choice(len(row), p=row) for row in odds])

        made, after = self.acting.act(look, choose, seen, self._first, kept)
        pairs = zip(self._memory, map(np.asarray, after), strict=True)
        self._memory = [np.where(_beside(due, new), new, old) for old, new in pairs]
        self._first = self._first & ~due
        names = ("action", "logits", "value", *self.acting.recorded)
        return dict(zip(names, map(np.asarray, made), strict=True))

    def _read(self, name: str, given: Any) -> np.ndarray:
        """One observation of all games, in the shape for the network. [B, ...]"""
        single, count = self._games is None, len(self._first)
        if not single and len(given) != count:  # such as one text instead of a list
            raise TypeError(f"{name!r} must have {count} games, not {len(given)}: policy.begin(games) sets the number")
        if name not in self._specs:
            prompts = [
                np.frombuffer(prompt.encode(), np.uint8) if isinstance(prompt, str) else checked(name, prompt, BYTES)
                for prompt in ([given] if single else given)
            ]
            rows = np.zeros((count, max(map(len, prompts))), np.uint8)  # as a world's prompts: padded with zeros
            for row, prompt in zip(rows, prompts, strict=True):
                row[: len(prompt)] = prompt
            return rows
        spec, array = self._specs[name], np.asarray(given)
        shape = array.shape if single else array.shape[1:]
        if shape not in (spec.shape, plain_shape(spec.shape)):
            raise TypeError(f"{name!r} of one game must have the shape {plain_shape(spec.shape)}, not {shape}")
        return checked(name, array, spec).reshape(count, *spec.shape)


def _beside(which: np.ndarray, array: np.ndarray) -> np.ndarray:
    """`which` [B], with the axes of the array [B, ...]."""
    return which.reshape(-1, *[1] * (array.ndim - 1))


def _odds(logits: Any) -> np.ndarray:
    """Probabilities, precise enough to sum to 1 for NumPy's generator."""
    return probabilities(np.asarray(logits, np.float64))


def checked(name: str, given: Any, spec: ArraySpec) -> np.ndarray:
    """An observation in the type of its spec; raises TypeError for numbers that the spec does not allow."""
    array, dtype = np.asarray(given), np.dtype(spec.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        converted: Any = array.astype(dtype) if array.dtype.kind in "biuf" else None
    fits = converted is not None and (np.isfinite(converted) if dtype.kind == "f" else converted == array).all()
    if not fits or (spec.categories and not ((converted >= 0) & (converted < spec.categories)).all()):
        limit = f" from 0 to {spec.categories - 1}" if spec.categories else ""
        raise TypeError(f"{name!r} must have finite numbers of the type {dtype}{limit}, not {shown(given)}")
    return converted


def load_policy(
    path: str | Path, which: str | int = "last", seed: int = 0, variant: str = "", trusted: str | Iterable[str] = ()
) -> Policy:
    """Loads a policy of `--stage=train_policy`, from the checkpoint alone.

    `policy.begin()` starts an episode and resets the recurrent state; `policy.begin(games)` starts many.
    `policy(observation)` returns an `Act`: the chosen action, the probabilities of all actions, and the value.

    Args:
      path: a workdir, its `policy` directory, a directory of checkpoints, or a release such as motif_jax/quickstart.
      which: "last", or the number of a checkpoint, which is its number of training steps.
      seed: for sampling the actions.
      variant: of the policy, if what acts has some; as PATH#VARIANT in evaluations.
      trusted: classes of yours (module:Class) that may be imported, such as the policy's network.
    """
    model, metadata, sources = read_policy(path, str(which), [trusted] if isinstance(trusted, str) else trusted)
    if variant:
        model = model._replace(acting=model.acting.variant(variant))
    return Policy(model, metadata, sources.learnt.reward if sources.learnt else None, seed)
