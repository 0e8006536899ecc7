"""Names of the stage's files and values."""

from motif_jax.rewards.choice import WRITTEN

STAGE_NAME = WRITTEN
FLAG = f"--config.{STAGE_NAME}"
RECORD = "record.json"
SCRIPTED, SERVER = "scripted", "server"  # writers
