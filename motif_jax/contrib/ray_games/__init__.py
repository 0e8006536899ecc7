"""Games on other hosts of a cluster of Ray, and several seeds or values on all its hosts (docs/ray.md).

For those who have one GPU and many cores elsewhere: the other hosts play, this one acts and learns. A host that is lost
loses no game. Its values are the section `ray_games` of the config; launch/ starts a cluster on SLURM or by ssh:

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/try --stage=collect \
        --config.ray_games.address=local --config.ray_games.hosts=2
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    pools={"ray": "motif_jax.contrib.ray_games.remote:pools"},
    runners={"ray": "motif_jax.contrib.ray_games.cluster:runner"},
    section="motif_jax.contrib.ray_games.sections:RayGames",
)
