"""What acts in each step: a policy alone, or what a plugin puts in its place (`Plugin.acting`).

There is one object for a training, a checkpoint or a player, which all of them ask: the plain one, `Acting`, or one of
a subclass. JAX is loaded only in methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from motif_jax.envs.world import ActionSpace, space_from
from motif_jax.names import ACTING, import_named
from motif_jax.structs import ArraySpec, UserError

Look = Callable[[Mapping[str, Any]], tuple[Any, Any, Any]]  # observations -> logits, values, the network's memory
Draw = Callable[[Any, int | None], Any]  # logits, number of the choice (None: an action) -> what is chosen. [B]
Read = Callable[[Any, Any], tuple[Any, Any]]  # observations, first -> logits [T, B, A], values of all observations

CHOOSER = "chooser"  # recorded: the index in `names` of who chose the action
KNOWN = {"network", "num_actions", "dtype", "reads", "order", "action_space"}  # keys of a network's spec


class Acting:
    """A policy alone: the network's outputs choose the action."""

    title = "one behaviour"  # in messages: the policy has ...
    record: Mapping[str, Any] = {}  # what it adds to a network's spec, from which it is made again: {its name: JSON}
    sources: Sequence[Any] | None = None  # the reward sources that `rewards` needs; None: those of `policy.sources`
    more_outputs = 0  # of the network, after those for an action
    behaviours = 0  # size of the observation BEHAVIOUR, which `act` and `unrolled` add for the network; 0: without it
    recorded: Mapping[str, ArraySpec] = {}  # of each step, beside action, outputs and value: `Rollouts.recorded`
    remembers = 0  # whole numbers that are kept of each game, 0 at first
    waits = False  # whether a game may stand still: `act` chooses WAIT, and acts again in the next step
    names: Sequence[str] = ()  # of those that may choose an action, if there are several

    def __init__(self, spec: Mapping[str, Any]):
        """`spec`: of the network (`policies.model.make_policy_model`)."""
        self.space: ActionSpace | None = space_from(spec)

    @classmethod
    def of_config(cls, config: Any) -> Acting | None:
        """What acts by this config, with all that the learner needs; None: another one. Raises UserError."""
        return None

    def act(
        self, look: Look, draw: Draw, observations: Mapping[str, Any], first: Any, kept: Sequence[Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Acts once in B games; `first`: an episode begins. `kept`: `remembers` arrays. [B] int32 each

        Returns actions, logits, values and the arrays of `recorded`; and the network's memory, then the new `kept`.
        """
        logits, values, memory = look(observations)
        return (draw(logits, None), logits, values), (memory,)

    def unrolled(self, read: Read, batch: Any, position: Any, settings: Any) -> tuple[Any, Any]:
        """The choices of each step, as `losses.Head`, and the values of the observations, by the trained policy.

        `batch`: `losses.Rollouts`; `position`: in the schedules, in updates.
        """
        from motif_jax.learner.losses import heads_of

        logits, values = read(batch.observations, batch.first)
        return heads_of(self.space, logits, batch), values

    def targets(self, data: Any, values: Any, ratio: Any, settings: Any) -> Any:
        """V-trace's `losses.Targets`; the arguments are those of `PolicyGradient.targets`."""
        from motif_jax.learner.losses import vtrace_targets

        return vtrace_targets(data, values, ratio, settings)

    def rewards(self, batch: Any, shape_rewards: Callable[[Any], Any], sources: Any) -> Any:
        """The `update.TrainingRewards` of rollouts; `shape_rewards`: those of a policy alone."""
        return shape_rewards(batch)

    def variant(self, name: str) -> Acting:
        """What acts in the variant PATH#NAME of a policy; raises UserError if there is none of this name."""
        raise UserError(f"the policy has {self.title}, and no variant {name!r}")


ALONE = Acting({})  # with actions that are single choices


def find_acting(config: Any) -> Acting | None:
    """What acts by this config, of a plugin if the config asks for it; None: the policy alone."""
    return next(filter(None, (import_named(path).of_config(config) for path in ACTING.values())), None)


def acting_of(spec: Mapping[str, Any]) -> Acting:
    """What acts with a network of this spec; raises UserError if it is of a plugin that is missing."""
    if missing := sorted(spec.keys() - KNOWN - {spec["network"]} - ACTING.keys()):
        raise UserError(f"the policy needs the plugin {missing[0]!r}, which is not installed")
    kinds = [import_named(path) for name, path in ACTING.items() if name in spec]
    return [*kinds, Acting][0](spec)
