"""The values of a config, each declared once, as a field of a dataclass in the room that reads its section:

    @dataclass(frozen=True)
    class Collect:
        num_pairs: int = value(100_000, Whole(1, 10**12), "pairs in the dataset", decides=True)

Defaults, checks, the identity of an experiment in its workdir, `--help` and docs/config.md come from this line.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar, get_type_hints

from motif_jax.console import clean, suggest
from motif_jax.structs import UserError

Config = TypeVar("Config")
LARGEST = 3e38  # just below the largest float32
MOST = 2**31 - 1  # the largest int32
MANY_SECONDS = 1e8  # three years; clocks, locks and sockets take no more than about 1e9


class Kind:
    """The type and limits of a value: `check` refuses other values, and `str` describes them in `--help`."""

    def check(self, name: str, flag: str, value: object) -> None:
        """Raises UserError, with one sentence, if the value called `name`, of `flag`, is not of this kind."""
        if not self.allows(value):
            raise UserError(f"{name} must be {self}, not {shown(value)} ({flag})")

    def check_all(self, flag: str, **values: object) -> None:
        for name, value in values.items():
            self.check(name, flag, value)

    def allows(self, value: Any) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number from `low` to `high`."""

    low: int = 0
    high: int = MOST

    def allows(self, value: Any) -> bool:
        return type(value) is int and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Number(Kind):
    """A number from `low` to `high`, not NaN; with `infinite`, infinity is allowed on a side without a limit."""

    low: float | None = None
    high: float | None = None
    above: bool = False  # `low` itself is not allowed
    below: bool = False  # `high` itself is not allowed
    infinite: bool = False

    def allows(self, value: Any) -> bool:
        if type(value) not in (int, float) or LARGEST < abs(value) < math.inf:
            return False
        unlimited = math.inf if self.infinite else LARGEST
        low = -unlimited if self.low is None else self.low
        high = unlimited if self.high is None else self.high
        return (low < value if self.above else low <= value) and (value < high if self.below else value <= high)

    def __str__(self) -> str:
        low = "" if self.low is None else f" {'above' if self.above else 'from'} {self.low:g}"
        high = "" if self.high is None else f" {'below' if self.below else 'to'} {self.high:g}"
        return f"a number{low}{high}" + " (or infinite)" * self.infinite


@dataclass(frozen=True)
class Flag(Kind):
    """True or False."""

    def allows(self, value: Any) -> bool:
        return type(value) is bool

    def __str__(self) -> str:
        return "True or False"


class OfPlugin(str):
    """A choice that a plugin adds; docs/config.md leaves it out."""


@dataclass(frozen=True)
class Text(Kind):
    """One of `choices`, or any text that is valid in files, terminals and other programs.

    With `own`, also a class of the user's, `module:Class`.
    """

    choices: tuple[str, ...] = ()
    longest: int = 200  # characters
    letters: str = ""  # the allowed characters, as in a regular expression's [...]; "": all but NUL and surrogates
    own: bool = False

    def check(self, name: str, flag: str, value: object) -> None:
        if not self.choices or (self.own and isinstance(value, str) and ":" in value):
            super().check(name, flag, value)
        elif value not in self.choices:
            hint = suggest(value[:200] if isinstance(value, str) else "", self.choices, f"choose from {self}")
            raise UserError(f"unknown {name} {shown(value)} ({flag}): {hint}")

    def allows(self, value: Any) -> bool:
        letters = f"[{self.letters}]*" if self.letters else "[^\0\ud800-\udfff]*"
        return isinstance(value, str) and len(value) <= self.longest and re.fullmatch(letters, value) is not None

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(self.choices) + ", or module:Class" * self.own
        return f"text of up to {self.longest:,} characters" + f", of {self.letters}" * bool(self.letters)


@dataclass(frozen=True)
class PathText(Text):
    """A path, or several that are separated by commas; releases keep its last part alone."""


PATH = PATHS = PathText(longest=4000)


@dataclass(frozen=True)
class SourcesText(Text):
    """Names of reward sources with coefficients; some sources are read from a file (rewards/registry.py)."""


NAME = Text(letters="A-Za-z0-9_-")  # of an annotation; names of files contain it
NAME_LIST = Text(longest=4000, letters="A-Za-z0-9_,-")


@dataclass(frozen=True)
class List(Kind):
    """At least one value of a kind; `item` is the noun for one of them."""

    of: Kind
    item: str

    def check(self, name: str, flag: str, value: Any) -> None:
        super().check(name, flag, value)
        for item in value:
            self.of.check(self.item, flag, item)

    def allows(self, value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) > 0

    def __str__(self) -> str:
        return f"a list, in brackets, of: {self.of}"


class Use(NamedTuple):
    """The condition for the effect of a value: in words, after "only with", and as a function of the reader."""

    words: str
    when: Callable[..., bool]


@dataclass(frozen=True)
class Value:
    """One value of the config."""

    kind: Kind
    about: str  # its meaning
    given: Any  # its default, or a function of the machine that returns it
    decides: bool = False  # whether it decides the result, and so cannot change within a workdir
    differs: str = ""  # the difference that `reference` removes; a part of a sentence
    only_for: Use | None = None  # None: it always has an effect
    group: str = ""  # the first line of its dataclass's docstring

    @property
    def default(self) -> Any:
        return self.given() if callable(self.given) else self.given


Table = dict[str, Value]  # by name, with dots for nested sections
Tables = dict[str, Table]  # by section; "" is for values outside of all sections


def value(
    default: Any, kind: Kind, about: str, *, decides: bool = False, differs: str = "", only_for: Use | None = None
) -> Any:
    """Declares a value of the config: a field of a dataclass. The arguments are those of `Value`."""
    metadata = {"value": Value(kind, about, default, decides, differs, only_for)}
    given = {"default_factory" if callable(default) else "default": default}
    return field(**given, metadata=metadata)


deciding = functools.partial(value, decides=True)


@functools.cache
def table_of(section: type, inner: str = "") -> Table:
    """The values that a dataclass declares; `inner` is the name of their nested section, if they have one."""
    table = {}
    for one in fields(section):
        if declared := one.metadata.get("value"):
            owner = next(base for base in section.__mro__ if one.name in inspect.get_annotations(base))
            group = (owner.__doc__ or "").partition("\n")[0]
            table[f"{inner}.{one.name}".lstrip(".")] = replace(declared, group=group)
    return table


def section(table: Table) -> Any:
    """Declares a section that stays a mapping, as records of it come from other workdirs: a field of a dataclass."""
    return field(default_factory=dict, metadata={"table": table})


def part(kind: type) -> Any:
    """Declares a section whose dataclass its reader's room may not import: a field of a dataclass, of type Any."""
    return field(default_factory=kind, metadata={"kind": kind})


def sections(kinds: Mapping[str, type]) -> Any:
    """Declares the sections of these dataclasses, by name: a field with a mapping of them."""
    return field(default_factory=lambda: {name: kind() for name, kind in kinds.items()}, metadata={"sections": kinds})


def tables_of(config: type) -> Tables:
    """The tables of a dataclass whose fields are values or, as dataclasses or mappings, sections."""
    tables: Tables = {"": table_of(config)} if table_of(config) else {}
    for name, (kind, table) in _sections(config).items():
        tables[name] = keys(tables_of(kind)) if table is None else table
    return tables


def typed(config: type[Config], values: Mapping[str, Any]) -> Config:
    """The dataclass with these values, which `check_values` has passed; others are left out."""
    arguments = {one.name: values[one.name] for one in fields(config) if "value" in one.metadata}  # type: ignore[arg-type]
    for name, (kind, table) in _sections(config).items():
        arguments[name] = dict(values[name]) if table is not None else typed(kind, values[name])
    for field_name, kinds in _named_sections(config).items():
        arguments[field_name] = {name: arguments.pop(name) for name in kinds}
    return config(**arguments)


def _sections(config: type) -> dict[str, tuple[Any, Table | None]]:
    """Type and, of a mapping, the table of each section."""
    hints = get_type_hints(config)
    own = {
        one.name: (one.metadata.get("kind", hints[one.name]), one.metadata.get("table"))
        for one in fields(config)
        if one.metadata.keys() & {"table", "kind"} or is_dataclass(hints[one.name])
    }
    return own | {name: (kind, None) for kinds in _named_sections(config).values() for name, kind in kinds.items()}


def _named_sections(config: type) -> dict[str, Mapping[str, type]]:
    """The types of the sections that `sections` declares, by its field."""
    return {one.name: one.metadata["sections"] for one in fields(config) if "sections" in one.metadata}


def keys(tables: Tables) -> dict[str, Value]:
    """The values of tables, by their names in the config."""
    return {
        f"{section}.{name}".lstrip("."): value for section, table in tables.items() for name, value in table.items()
    }


def check_values(config: Mapping[str, Any], tables: Tables) -> None:
    """Raises UserError if a value is not of its kind."""
    flat = flatten(config)
    for key, value in keys(tables).items():
        value.kind.check(key.rpartition(".")[2], f"--config.{key}", flat[key])


def describe_changed(section: str, table: Table, values: Mapping[str, Any], names: Iterable[str]) -> str:
    """Those of these values that differ from their defaults, or "": `top_k = 3 (--config.decoding.top_k)`."""
    changed = [name for name in names if values[name] != table[name].default]
    listed = ", ".join(f"{name} = {shown(values[name])}" for name in changed)
    return f"{listed} (--config.{section}.{', .'.join(changed)})" if changed else ""


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one: {"a": {"b": 1}} -> {"a.b": 1}"""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def shown(value: object) -> str:
    """The `repr` of any value as one short line, for messages."""
    try:
        return clean(repr(value), 80)
    except RecursionError:  # JSON that could just be read
        return f"a {type(value).__name__} that is nested too deeply"


# ---- the texts of `--help=SECTION` and docs/config.md

REFERENCE, ALL, MARKDOWN = "reference", "all", "markdown"
OUTSIDE = "experiment"  # for values outside of all sections
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
    "pairs come from a scripted explorer, not from agents trained on the score (`.collect.policies` can play)",
    "games have seeds",
    "the game is NetHack 3.6.7 (NLE 1.3) rather than 3.6.6",
    "prompts are in our own words (`.annotate.prompt_file` takes others)",
    "the system text of prompts is sent, and a second attempt has the roles of a conversation",
    "if no verdict has the key of the prompt, one with the key of the other published prompt counts",
    "pairs with the same two captions are one question, asked once",
    "epoch 0 of a reward can be chosen",
)


def describe(topic: str, tables: Tables, given: Mapping[str, Any], of_plugins: Collection[str] = ()) -> str:
    """The help text of a section of the config, or of one of TOPICS; "" lists them.

    `given`: values by name. `of_plugins`: sections that docs/config.md leaves out; `markdown:NAME` has one of them.
    """
    sections = {name or OUTSIDE: {name: table} for name, table in tables.items()}
    if topic == REFERENCE:
        differs = [value.differs for value in keys(tables).values() if value.differs]
        parts = {"Different unless `reference` is given": differs, "Different in any case": ALWAYS}
        return "\n\n".join(f"{title}:\n" + "\n".join(f"  {line}" for line in lines) for title, lines in parts.items())
    if topic == MARKDOWN:
        own = (_chapter(name, section) for name, section in sections.items() if name not in of_plugins)
        return "\n\n".join([PAGE, *own])
    if (name := topic.removeprefix(f"{MARKDOWN}:")) != topic and name in sections:
        return _chapter(name, sections[name])
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
                cells = f"`{key}`", default, value.about + _use(value), str(_of_program(value.kind))
                marked = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
                rows.append(f"| {' | '.join(marked)} | {'yes' if value.decides else ''} |")
        parts += [group, "\n".join(rows)]
    return "\n\n".join(parts)


def _of_program(kind: Kind) -> Kind:
    """The kind without the choices that plugins add."""
    if isinstance(kind, List):
        return replace(kind, of=_of_program(kind.of))
    if isinstance(kind, Text):
        return replace(kind, choices=tuple(one for one in kind.choices if not isinstance(one, OfPlugin)))
    return kind


def _default(value: Value) -> str:
    """The default as text; the name of the function for one that depends on the machine."""
    return f"{value.given.__name__}()" if callable(value.given) else str(value.given)


def _use(value: Value) -> str:
    return f"; only with {value.only_for.words}" if value.only_for else ""
