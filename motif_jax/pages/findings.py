"""Findings of an audit on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.pages.blocks import table
from motif_jax.pages.formats import esc


def findings_blocks(
    findings: Sequence[Mapping[str, Any]], clear: Sequence[Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Findings, worst first, as HTML.

    `clear`: checks that found nothing, and what they looked at. `skipped`: checks that could not be made, and why.
    """
    rows = [[esc(one["check"]), f"{esc(one['sentence'])}.", esc(one["advice"])] for one in findings]
    body = [table(("check", "finding, worst first", "try"), rows) if rows else "<p><b>Nothing found.</b></p>"]
    named = "; ".join(
        f"{esc(one['check'])} ({esc(one['about'])})" if one["about"] else esc(one["check"]) for one in clear
    )
    body += [f'<p class="soft">Nothing found by: {named}.</p>'] if named else []
    named = "; ".join(f"{esc(one['check'])}: {esc(one['why'])}" for one in skipped)
    return [*body, f'<p class="soft">Not looked at: {named}.</p>'] if named else body
