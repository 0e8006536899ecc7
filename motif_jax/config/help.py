"""The texts of `--help=SECTION` and `--help=reference`, made from the tables of the config's values."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Mapping
from typing import Any

from motif_jax.config.table import Tables, keys
from motif_jax.structs import UserError

REFERENCE = "reference"
ALWAYS = (  # differences from the published system that no value of the config removes
    "a success at the very last permitted step counts",
    "the state of an episode (visited levels, steps without game time) does not leak into the next",
    "the message of a death is kept",
    "the message of descending stairs is kept when a question follows it",
    "running variances divide by the number of values, not by one less, and have no prior value",
    "games have seeds",
    "the game is NetHack 3.6.7 (NLE 1.3) rather than 3.6.6",
    "prompts are in words of our own (`.annotate.prompt_file` takes others)",
    "their system text is sent, and a second try has the roles of a conversation",
    "pairs that show the same two captions are one question, asked once",
    "epoch 0 of a reward can be chosen",
)


def differences(tables: Tables) -> list[str]:
    """Differences from the published system that exist unless `reference` is given."""
    return [value.differs for value in keys(tables).values() if value.differs]


def describe(section: str, tables: Tables, defaults: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """The help text of a section: its values, what they must be, their defaults and comments.

    Args:
      section: its name in the config, or "reference" for what that switch changes.
      tables: the values of all sections.
      defaults: the values that a config file gives, by name; may be empty.
      comments: the comments of the config file, by name.
    """
    if section == REFERENCE:
        parts = {"Different unless `reference` is given": differences(tables), "Different in any case": ALWAYS}
        return "\n\n".join(f"{title}:\n" + "\n".join(f"  {line}" for line in lines) for title, lines in parts.items())
    if section not in tables or not section:
        names = [name for name in tables if name] + [REFERENCE]
        near = difflib.get_close_matches(section, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
        raise UserError(f"the config has no section {section[:80]!r} (--help): {hint}")
    lines = []
    for key, value in keys({section: tables[section]}).items():
        default = f"={defaults[key]}" if key in defaults else ""
        lines += [f"--config.{key}{default}"]
        about = f"{value.kind}; {'decides the result' if value.decides else 'only how the work is done'}"
        lines += textwrap.wrap(about, 110, initial_indent="    ", subsequent_indent="    ")
        if key in comments:
            lines += textwrap.wrap(comments[key], 110, initial_indent="    # ", subsequent_indent="    # ")
    return "\n".join(lines)
