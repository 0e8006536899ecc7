"""A callback of Stable-Baselines3 that writes the rows that `motif-audit` reads, where environments cannot be wrapped.

    PPO("MlpPolicy", env).learn(5_000, callback=Record("run.jsonl"))

An episode's outcome is `info["is_success"]` and a step's caption `info["caption"]`, if the environment has them.
"""

import json
import secrets

from stable_baselines3.common.callbacks import BaseCallback


class Record(BaseCallback):
    """Appends a line per step of each environment."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path

    def _on_training_start(self) -> None:
        self.file, self.run = open(self.path, "a"), secrets.token_hex(4)  # noqa: SIM115  (until training ends)
        self.episodes = [0] * self.training_env.num_envs

    def _on_step(self) -> bool:
        rows = zip(*(self.locals[name] for name in ("rewards", "dones", "infos")), strict=True)
        for i, (reward, done, info) in enumerate(rows):
            row = {"episode": f"{self.run}-{i}-{self.episodes[i]}", "reward": float(reward), "ended": bool(done)}
            row |= {
                "caption": info.get("caption"),
                "outcome": float(info["is_success"]) if "is_success" in info else None,
            }
            self.file.write(json.dumps(row) + "\n")
            self.episodes[i] += bool(done)
        return True

    def _on_training_end(self) -> None:
        self.file.close()
