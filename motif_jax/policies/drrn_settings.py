"""The values of the config of a policy whose network is DRRN, `config.policy.drrn`. Without JAX."""

from __future__ import annotations

from motif_jax.config.table import Table, Value, Whole

SECTION = "drrn"
FLAG = f"--config.policy.{SECTION}"
TABLE: Table = {  # values of the config's section `policy`
    f"{SECTION}.width": Value(Whole(1, 2**14), decides=True, older=128),
    f"{SECTION}.max_tokens": Value(Whole(1, 2**20), decides=True, older=512),
}
