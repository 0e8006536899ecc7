"""The planted faults as reward-scope sees them, beside `motif-audit`; reward-scope is in an environment of its own.

python -m venv scope && scope/bin/pip install reward-scope==0.2.2
PYTHONPATH=tests/contrib/audit python benchmarks/peers/run_reward_scope.py scope/bin/python 2   # seeds

There are four times as many seeds without a fault. Its suite of detectors gets each step as its wrapper of gymnasium
would give it, with its default values. The files have no actions, so its check of repeated actions is off; they have no
bounds of observations, so that check says nothing.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def alerts_of(file: Path) -> set[str]:
    """The kinds of alerts for a file, after `alert:` or `warning:`; runs in the other environment."""
    import numpy as np
    from reward_scope import HackingDetectorSuite

    suite, done = HackingDetectorSuite(disable_detectors=["action_repetition"]), 0
    totals = dict[str, float]()
    for step, line in enumerate(file.read_text().splitlines()):
        row = json.loads(line)
        parts = row["reward"] if "reward" in row else {name: row[name] for name in ("style", "form")}
        parts = parts if isinstance(parts, dict) else {"reward": parts}
        ended, reward = row.get("ended", True), sum(parts.values())
        state = np.array([int(row.get("observation", f"{step:x}"), 16)])
        suite.update(step, done, state, 0, reward, parts if len(parts) > 1 else {}, ended, {})
        if len(parts) > 1:
            totals = {name: totals.get(name, 0.0) + value for name, value in parts.items()}
        if ended:
            suite.on_episode_end({"episode": done, "component_totals": totals})
            totals, done = {}, done + 1
    return {f"{alert.alert_severity.value.lower()}:{alert.type.value}" for alert in suite.get_all_alerts()}


def main(python: str, seeds: int) -> None:
    """Prints the table of docs/results/audit.md: of both, the files with a report at all."""
    import planted_worlds

    from motif_jax.contrib.audit.trajectories import audit_file

    print("| planted | files | motif-audit | reward-scope, any | without warnings | its alerts |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    nothing = {"nothing": False, "nothing, in completions that repeat themselves": True}
    for fault in (*planted_worlds.FAULTS, *nothing):
        ours, theirs, firm, kinds, files = 0, 0, 0, set[str](), 0
        numbers = range(100, 100 + 4 * seeds) if fault in nothing else range(seeds)
        for world in planted_worlds.WORLDS.values():
            for seed in numbers:
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "rows.jsonl"
                    texts = nothing.get(fault, fault == planted_worlds.FLOOD)
                    write = planted_worlds.write_texts if texts else planted_worlds.write
                    write(file, world, "" if fault in nothing else fault, seed)
                    checks = {one["check"] for one in audit_file(file)["findings"]}
                    said = subprocess.run([python, __file__, file], capture_output=True, text=True, check=True).stdout
                files += 1
                ours += bool(checks if fault in nothing else planted_worlds.FAULTS[fault] in checks)
                alerts = {one.partition(":")[2] for one in said.split() if one.startswith("alert:")}
                theirs, firm, kinds = theirs + bool(said.split()), firm + bool(alerts), kinds | alerts
        print(f"| {fault} | {files} | {ours} | {theirs} | {firm} | {', '.join(sorted(kinds))} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(*sorted(alerts_of(Path(sys.argv[1]))))
    else:
        main(sys.argv[1], int(sys.argv[2]))
