"""What acts in a step: an option, or the controller, which decides while the game stands still."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from motif_jax.contrib.options.plan import OPTIONS_FLAG, OptionPlan, behaviours_of, find_behaviour, find_plan, named
from motif_jax.contrib.options.sections import OPTIONS, OptionsSection
from motif_jax.envs.world import WAIT, space_of
from motif_jax.envs.worlds import make_world
from motif_jax.learner.acting import CHOOSER, Acting, Draw, Look, Read
from motif_jax.learner.algorithms import OffPolicy
from motif_jax.learner.settings import find_algorithm
from motif_jax.names import ALGORITHMS, PROMPT_NETWORKS
from motif_jax.networks.kinds import BEHAVIOUR
from motif_jax.structs import ArraySpec, UserError

if TYPE_CHECKING:
    from motif_jax.contrib.options.control import Control
    from motif_jax.contrib.options.heads import OptionHeads


class Options(Acting):
    """Several options and their controller; or one of them, or a mixture, that plays alone."""

    waits, remembers = True, 2  # who is in charge of the next step, and game steps until the controller is
    plan: OptionPlan  # in training
    section = OptionsSection()
    discount = 1.0
    only: int | tuple[float, ...] | None = None  # the option or the mixture that plays alone

    def __init__(self, spec: Mapping[str, Any]):
        super().__init__(spec)
        self.record, self._actions = {OPTIONS: spec[OPTIONS]}, spec["num_actions"]
        self.recorded = dict.fromkeys((CHOOSER, "next", "drawn", "option", "length"), ArraySpec((), "int32"))
        self.title = f"the options {', '.join(spec[OPTIONS]['names'])}"

    @classmethod
    def of_config(cls, config: Any) -> Options | None:
        if not (plan := find_plan(config)):
            return None
        world = make_world(config.env)
        check(config, world)
        acting = cls({"num_actions": len(world.action_names), OPTIONS: plan.record()})
        acting.plan, acting.section, acting.sources = plan, config.plugins[OPTIONS], plan.sources
        acting.discount = config.policy.discount
        return acting

    @functools.cached_property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        record = self.record[OPTIONS]
        return [named(record["names"], self.only)] if isinstance(self.only, tuple) else behaviours_of(record)

    @functools.cached_property
    def heads(self) -> OptionHeads:
        from motif_jax.contrib.options.heads import heads_of

        return heads_of(self.record[OPTIONS], self._actions)

    @property
    def more_outputs(self) -> int:  # type: ignore[override]
        return sum(self.heads.sizes) - self._actions

    @property
    def behaviours(self) -> int:  # type: ignore[override]
        return self.heads.behaviours

    @property
    def control(self) -> Control:
        from motif_jax.contrib.options.control import Control

        return Control(self.heads, self.section)

    def act(
        self, look: Look, draw: Draw, observations: Mapping[str, Any], first: Any, kept: Sequence[Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        import jax.numpy as jnp

        heads, (in_charge, steps_left), mixture = self.heads, kept, None
        charge = jnp.where(first, heads.options, in_charge)
        if self.only is not None:
            mixture = self.only if isinstance(self.only, tuple) else None
            charge = jnp.full_like(charge, 0 if isinstance(self.only, tuple) else self.only)
        logits, values, memory = look({**observations, BEHAVIOUR: heads.behaviour(charge, mixture)})
        drawn, *chosen = [draw(part, number) for number, part in enumerate(heads.split(logits))]
        option, length = heads.joint(chosen)
        decides = charge == heads.options
        left = jnp.where(decides, jnp.array(heads.lengths, jnp.int32)[length], steps_left - 1)
        following = jnp.where(decides, option, jnp.where(left > 0, charge, heads.options))
        actions = jnp.where(decides, WAIT, drawn)
        return (actions, logits, values, charge, following, drawn, option, length), (memory, following, left)

    def unrolled(self, read: Read, batch: Any, position: Any, settings: Any) -> tuple[Any, Any]:
        control = self.control
        logits, values = read(*control.with_behaviour(batch))
        return control.chosen(logits, batch, control.exploration_after(position, settings.total_updates)), values

    def targets(self, data: Any, values: Any, ratio: Any, settings: Any) -> Any:
        return self.control.targets(values, data.reward, ratio, data.valid, data.rollouts, settings)

    def rewards(self, batch: Any, shape_rewards: Callable[[Any], Any], sources: Any) -> Any:
        """Those of the behaviour in charge, in place of `shape_rewards`."""
        import jax.numpy as jnp

        from motif_jax.learner.update import TrainingRewards

        shaped, plan = sources.shape(dict[str, Any](batch.reward_inputs)), self.plan
        rewards = jnp.stack([batch.reward, *(shaped[choice.name] for choice in plan.sources)])
        factors = jnp.asarray(plan.reward_factors)
        total, of_options = self.control.training_rewards(rewards, factors, batch, self.discount)
        return TrainingRewards(total, batch.reward, of_options)

    def variant(self, name: str) -> Options:
        """The option, or the mixture, that plays alone."""
        alone = copy.copy(self)
        alone.only, alone.waits = find_behaviour(name, self.record[OPTIONS]), False
        alone.__dict__.pop("names", None)
        return alone


def check(config: Any, world: Any) -> None:
    """Raises UserError if options do not work with other values of the config."""
    section = config.policy
    if space_of(world):
        what = f"the actions of the world {world.name!r} are several choices or numbers, which options cannot choose"
        raise UserError(f"{what} ({OPTIONS_FLAG})")
    if not _learns(section.algorithm) or section.network in PROMPT_NETWORKS:
        able = " and ".join(filter(_learns, ALGORITHMS))
        raise UserError(
            f"options are learnt by {able} and by networks that do not read prompts, not by {section.algorithm!r} with "
            f"the network {section.network!r} (--config.policy.algorithm, .network, {OPTIONS_FLAG})"
        )


def _learns(algorithm: str) -> bool:
    """Whether the targets of an algorithm are those of `Acting.targets`."""
    kind = type(find_algorithm(algorithm))
    return issubclass(kind, OffPolicy) and kind.targets is OffPolicy.targets
