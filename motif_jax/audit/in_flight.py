"""The audit of a reward that is learnt during training: the captions it has paid for, by the judge's labels so far.

Nothing is asked. A caption is worth 1 if the judge calls it better than no message, 0 if it calls it neutral, and -1 if
it calls it worse; captions without a label have no worth. With these, the checks are those of `pay.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.audit import pay
from motif_jax.audit.captions import Captions, group_captions, mean_by
from motif_jax.audit.findings import Check, Findings, conclude
from motif_jax.audit.judge import verdicts
from motif_jax.audit.pay import Steps, share_pay
from motif_jax.audit.record import most_paid

MORE_LABELS = (
    "more labels, first where the network is least certain, --config.policy.online.order=uncertain, or, for "
    "classification, a higher --config.policy.online.threshold"
)


class InFlightAudit(NamedTuple):
    """The result."""

    findings: Findings
    paid: list[dict[str, Any]]  # see `most_paid`; a `worth` of NaN: no label
    neutral: float  # share of the pay for captions that the judge calls neutral or worse


def audit_in_flight(steps: Steps, texts: Sequence[str], better: np.ndarray) -> InFlightAudit:
    """Audits the last episodes.

    Args:
      steps: the paid steps of the episodes; episodes without any have the first numbers.
      texts: the captions. [U]
      better: P(better than no message) of each caption, by the judge; NaN without a label. [U]
    """
    worth = verdicts(better)
    group, names = group_captions(texts)
    of_kind = Captions(list(texts), np.full(len(texts), np.nan), group, names, mean_by(group, worth, len(names)))
    of_label = _split(of_kind, worth)  # captions of one kind may have different labels
    paid = share_pay(steps, of_label)
    if steps.episodes < pay.FEWEST or not paid.total.sum():
        why = "no step of the last episodes is paid"
        if 0 < steps.episodes < pay.FEWEST:
            why = f"{steps.episodes} episodes have ended since training began or went on, and {pay.FEWEST} are needed"
        return InFlightAudit(conclude([Check(name, skipped=why) for name in (pay.PAY, pay.LOOPS)]), [], 0.0)
    checks = [Check(pay.PAY, skipped="no label says whether a caption is better than no message")]
    if not np.isnan(worth).all():
        neutral = pay.check_neutral(of_label, paid)
        checks = [neutral._replace(suspicions=tuple(one._replace(advice=MORE_LABELS) for one in neutral.suspicions))]
    checks.append(pay.check_loops(of_kind, paid, steps))
    most = most_paid(paid, of_label, np.bincount(steps.caption, minlength=len(texts)))
    return InFlightAudit(conclude(checks), most, paid.together(of_label.worth <= 0)[0])


def _split(captions: Captions, worth: np.ndarray) -> Captions:
    """The same captions in groups of one kind and one worth."""
    unknown = 2.0
    both = np.stack([captions.group, np.nan_to_num(worth, nan=unknown)], 1)
    kinds, group = np.unique(both, axis=0, return_inverse=True)
    names, worth = [captions.names[int(kind)] for kind in kinds[:, 0]], kinds[:, 1]
    return captions._replace(group=group.reshape(-1), names=names, worth=np.where(worth == unknown, np.nan, worth))
