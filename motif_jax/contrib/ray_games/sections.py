"""The values of Ray in the config: the section `ray_games`."""

from dataclasses import dataclass

from motif_jax.config.table import Number, Text, Whole, value

NAME = "ray_games"


@dataclass(frozen=True)
class RayGames:
    """A cluster of Ray, for games on other hosts and for many runs."""

    address: str = value(
        "", Text(longest=300), "auto: the cluster of this host; host:port of its head; local: this machine; empty: none"
    )
    hosts: int = value(0, Whole(0, 1000), "hosts that play in collect, train_policy and evaluate, beside this one")
    cores: int = value(1, Whole(1, 10_000), "cores of each host of games, with a worker each; cores of each run")
    gpus: float = value(0.0, Number(0, 1000), "GPUs of each run of several; 0: the CPU; 0.5: two runs share one")
