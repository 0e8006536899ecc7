"""The policy: logits of actions and a value, from observations and memory.

A preset is an encoder, a gated recurrent unit and two heads. "reference" is the published network (2,795,640 parameters
with 23 actions); "small" is ours, for machines without an accelerator; both read NetHack. "general" and "film" are made
from the specs of any world's observations (general.py), as is a user's own encoder (own.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.general import FilmEncoder, GeneralEncoder
from motif_jax.networks.kinds import BEHAVIOUR, BY_SPECS, FILM, GENERAL, is_own
from motif_jax.networks.layers import Core
from motif_jax.networks.own import OwnEncoder
from motif_jax.networks.presets import PRESETS, BehaviourVector
from motif_jax.structs import ArraySpec

GENERAL_CORE = 128
BEHAVIOUR_FEATURES = 64  # features of who is in charge
ENCODERS = {GENERAL: GeneralEncoder, FILM: FilmEncoder}  # of the networks BY_SPECS


class PolicyNetwork(nnx.Module):
    """Maps observations and memory to logits of actions and a value."""

    reads: tuple[str, ...]  # names of the observations
    core_size: int  # numbers of memory per game

    def __init__(
        self,
        preset: str,
        num_actions: int,
        *,
        specs: Mapping[str, ArraySpec] | None = None,
        behaviours: int = 0,
        dtype: DTypeLike = jnp.float32,
        for_cpu: bool | None = None,
        rngs: nnx.Rngs,
    ):
        """Initialises the parameters as published.

        Args:
          preset: one of PRESETS, or of BY_SPECS, or `module:Class`.
          num_actions: number of logits.
          specs: of the observations, except for PRESETS.
          behaviours: size of the observation BEHAVIOUR; 0: the network does not have it.
          dtype: of products; parameters and results are float32.
          for_cpu: whether to use the fast computation for CPUs, with the same result (images.py); None: if the default
            backend is a CPU.
          rngs: of the initialisation.
        """
        for_cpu = jax.default_backend() == "cpu" if for_cpu is None else for_cpu
        how: dict[str, Any] = {"behaviours": behaviours, "for_cpu": for_cpu, "dtype": dtype, "rngs": rngs}
        self.core_size = GENERAL_CORE
        if preset in BY_SPECS:
            self.encoder: Any = ENCODERS[preset](specs or {}, **how)
        elif is_own(preset):
            self.encoder = OwnEncoder(preset, specs or {}, dtype=dtype, rngs=rngs)
        else:
            encoder, self.core_size = PRESETS[preset]
            self.encoder = encoder(**how)
        self.reads = self.encoder.reads
        self.behaviour = BehaviourVector(behaviours, BEHAVIOUR_FEATURES, rngs=rngs) if behaviours else None
        features = self.encoder.features + (BEHAVIOUR_FEATURES if behaviours else 0)
        self.core = Core(features, self.core_size, dtype=dtype, rngs=rngs)
        self.value = nnx.Linear(self.core_size, 1, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)
        self.policy = nnx.Linear(self.core_size, num_actions, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)

    def prepare(self) -> Any:
        """Computes the part of `step` that depends only on the parameters, so that steps can share it."""
        with jax.named_scope("encoder"):
            return self.encoder.prepare()

    def step(
        self, observations: Mapping[str, jax.Array], first: jax.Array, core: jax.Array, prepared: Any = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes one step of each game.

        Args:
          observations: those of `reads`, and BEHAVIOUR if the network has it. [B, ...]
          first: whether an episode begins here, which resets the memory. [B] bool
          core: memory before the step. [B, core_size] float32
          prepared: result of `prepare`; if None, it is computed here.

        Returns:
          Logits [B, A], values [B] and memory [B, core_size], float32.
        """
        projected = self._project(observations, prepared)
        with jax.named_scope("core"):
            core = self.core.step(projected, first, core)
        return *self._heads(core), core

    def unroll(
        self, observations: Mapping[str, jax.Array], first: jax.Array, core: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Computes T consecutive steps, with everything but the memory in parallel.

        Observations and `first` as for `step`, [T, B, ...]; `core` is the memory before the first step. Returns logits
        [T, B, A] and values [T, B], float32.
        """
        steps, batch = first.shape
        keys = (*self.reads, *([BEHAVIOUR] if self.behaviour else []))
        flat = {key: observations[key].reshape(steps * batch, *observations[key].shape[2:]) for key in keys}
        projected = self._project(flat).reshape(steps, batch, -1)
        with jax.named_scope("core"):
            cores = self.core.unroll(projected, first, core)
        return self._heads(cores)

    def _project(self, observations: Mapping[str, jax.Array], prepared: Any = None) -> jax.Array:
        with jax.named_scope("encoder"):
            features = self.encoder(observations, prepared)
            if self.behaviour:
                behaviour = self.behaviour(observations[BEHAVIOUR])
                features = jnp.concatenate([features, behaviour.astype(features.dtype)], -1)
        with jax.named_scope("core"):
            return self.core.project(features)

    def _heads(self, core: jax.Array) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("heads"):
            return self.policy(core), self.value(core)[..., 0]
