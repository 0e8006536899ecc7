"""The texts of `--help=SECTION` and docs/config.md, from the declarations of the config's values."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from motif_jax.config.table import Tables, Value, keys
from motif_jax.console import suggest
from motif_jax.structs import UserError

REFERENCE, ALL, MARKDOWN = "reference", "all", "markdown"
EXPERIMENT = "experiment"  # for values outside of all sections
TOPICS = {ALL: "all sections", REFERENCE: "effects of a config's switch `reference`", MARKDOWN: "docs/config.md"}
PAGE = """# All values of the config

Made by `motif-jax --help=markdown > docs/config.md` from the declarations in the code. A value that decides the result
cannot change within a workdir. `--help=SECTION` prints the same, with the values of a config file if `--config` names
one."""
ALWAYS = (  # differences from the published system that no value of the config removes
    "a success at the last permitted step counts",
    "the state of an episode (visited levels, steps without game time) does not leak into the next",
    "the message of a death is kept",
    "the message of descending stairs is kept when a question follows it",
    "running variances divide by the number of values, not by one less, and have no prior value",
    "games have seeds",
    "the game is NetHack 3.6.7 (NLE 1.3) rather than 3.6.6",
    "prompts are in our own words (`.annotate.prompt_file` takes others)",
    "the system text of prompts is sent, and a second attempt has the roles of a conversation",
    "if no verdict has the key of the prompt, one with the key of the other published prompt counts",
    "pairs with the same two captions are one question, asked once",
    "epoch 0 of a reward can be chosen",
)


def describe(topic: str, tables: Tables, given: Mapping[str, Any]) -> str:
    """The help text of a section of the config, or of one of TOPICS; "" lists them. `given`: values by name."""
    sections = {name or EXPERIMENT: {name: table} for name, table in tables.items()}
    if topic == REFERENCE:
        differs = [value.differs for value in keys(tables).values() if value.differs]
        parts = {"Different unless `reference` is given": differs, "Different in any case": ALWAYS}
        return "\n\n".join(f"{title}:\n" + "\n".join(f"  {line}" for line in lines) for title, lines in parts.items())
    if topic == MARKDOWN:
        return "\n\n".join([PAGE, *(_chapter(name, section) for name, section in sections.items())])
    if topic == ALL:
        return "\n\n".join(_describe_section(section, given) for section in sections.values())
    if topic in sections:
        return _describe_section(sections[topic], given)
    if not topic:
        listed = {name: next(iter(keys(section).values())).group for name, section in sections.items()} | TOPICS
        return "\n".join(f"--help={name:15} {about}" for name, about in listed.items())
    hint = suggest(topic, [*sections, *TOPICS])
    raise UserError(f"the config has no section {topic[:80]!r} (--help): {hint}")


def _describe_section(section: Tables, given: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for key, value in keys(section).items():
        if f"# {value.group}" not in lines:
            lines += ["", f"# {value.group}"]
        lines.append(f"--config.{key}={given.get(key, _default(value))}")
        identity = "decides the result" if value.decides else "only how the work is done"
        for text in (value.about, f"{value.kind}; {identity}{_use(value)}"):
            lines += textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines[1:])


def _chapter(name: str, section: Tables) -> str:
    """A section as Markdown, with a table for each of its dataclasses."""
    values = keys(section)
    parts = [f"## {name}"]
    for group in dict.fromkeys(value.group for value in values.values()):
        rows = ["| `--config.` | default | meaning | allowed | decides |", "| --- | --- | --- | --- | --- |"]
        for key, value in values.items():
            if value.group == group:
                default = f"`{_default(value)}`" if _default(value) else "empty"
                cells = f"`{key}`", default, value.about + _use(value), str(value.kind)
                marked = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
                rows.append(f"| {' | '.join(marked)} | {'yes' if value.decides else ''} |")
        parts += [group, "\n".join(rows)]
    return "\n\n".join(parts)


def _default(value: Value) -> str:
    """The default as text; the name of the function for one that depends on the machine."""
    return f"{value.given.__name__}()" if callable(value.given) else str(value.given)


def _use(value: Value) -> str:
    return f"; only with {value.only_for.words}" if value.only_for else ""
