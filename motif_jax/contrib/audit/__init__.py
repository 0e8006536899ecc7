"""The audit: is a reward right? It looks for pay for the wrong thing, and for judges that are wrong, worst first.

For whoever learns a reward or is paid by one: `--stage=audit` after an evaluation (docs/audit.md, the section `audit`
of the config); ONI's reward is also audited in flight, every `audit.every_steps` of training. `motif-audit FILE.jsonl`
audits the trajectories of other programs, which `motif_jax.record` writes (docs/trajectories.md).
findings.py and judge.py have the checks, pure functions on NumPy arrays, which ask no judge and read no file.
"""

from motif_jax.plugins import Plugin

PLUGIN = Plugin(
    stages={"audit": "motif_jax.contrib.audit.stage:STAGE"},
    training_hooks={"audit": "motif_jax.contrib.audit.flight:FlightAudit"},
    api={"record": "motif_jax.contrib.audit.recording:record"},
    section="motif_jax.contrib.audit.sections:AuditSection",
)
