"""Names of the stage's files and values."""

STAGE_NAME = "write_reward"
FLAG = f"--config.{STAGE_NAME}"
RECORD, BEST = "record.json", "best.reward"
SCRIPTED, SERVER = "scripted", "server"  # writers
