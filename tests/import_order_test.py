"""Who may import whom: rooms form a directed graph without circles, and so do all files, whatever their rooms."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from motif_jax import names
from motif_jax.envs.worlds import make_world
from motif_jax.networks.kinds import BY_SPECS, FIXED
from motif_jax.offline.recipes import RECIPES
from motif_jax.pages.players import FAMILY
from motif_jax.plugins import CONTRIB
from motif_jax.rewards.section import JUDGED
from motif_jax.stages import NAMES

pytestmark = pytest.mark.quick
TABLES_OF_NAMES = [table for name, table in vars(names).items() if name.isupper() and isinstance(table, dict)]
OF_CONTRIB = {  # every name that a folder of contrib declares, and its own
    name: {name}.union(*(names for table, names in plugin.tables().items() if table != "api"))  # in the config
    for name, plugin in names.PLUGINS.by_name.items()
    if (CONTRIB / name).is_dir()
}
PACKAGE = Path(__file__).parent.parent / "motif_jax"
# Room: the rooms that it imports, without the two that all others may import.
BELOW_ALL = ("system", "config")
ARROWS = {
    "system": set(),
    "config": set(),
    "devices": set(),
    "envs": set(),
    "actors": {"envs"},
    "networks": {"envs"},
    "language": {"devices"},
    "learner": {"devices", "envs", "networks"},
    "offline": {"devices", "language", "transcripts"},
    "preferences": set(),
    "transcripts": set(),
    "annotation": {"envs", "language", "preferences"},
    "rewards": {"annotation", "devices", "envs", "learner", "networks", "preferences"},
    "policies": {"devices", "envs", "language", "learner", "networks", "offline", "rewards", "transcripts"},
    "replays": set(),
    "episodes": {"actors", "envs", "replays"},
    "pages": set(),
}
ARROWS["contrib"] = {*ARROWS, "stages"}
# Stages wire any rooms; what they may take from each other:
STAGES = {
    "collect": {"train_policy"},
    "annotate": set(),
    "check_judge": {"annotate"},
    "train_reward": {"annotate"},
    "train_policy": {"annotate"},
    "offline": set(),
    "train_language": {"collect", "offline"},
    "train_values": {"offline", "train_language"},
    "evaluate": {"train_policy", "train_values"},
    "report": set(),
    "visualize": {"evaluate"},
}
FROM_OUTSIDE = {  # modules that something else than the package imports
    "motif_jax.launch": "the command line",
    "motif_jax.contrib.audit.command": "the command motif-audit",
    "motif_jax.policies.chat": "the command motif-chat",
    "motif_jax.envs.arena_world": "worlds of a user's own, of TextArena",
    "motif_jax.envs.conversation": "integrations/",
    "motif_jax.envs.nethack.gym_game": "gymnasium, by the ids that are registered",
    "motif_jax.envs.nethack.recorded": "launch/engine.sh and the benchmark",
}
ROOT_OF_ALL = {"motif_jax.structs", "motif_jax.console", "motif_jax.files"}  # at the root, for rooms below all others
ABOVE_ALL = {"api", "experiment", "launch", "run"}  # the files at the root that import rooms or stages
MODULES = {  # the files of the package by the names that they are imported by
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
    if "configs" not in file.parts
}


@functools.cache
def nodes_of(module: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(MODULES[module].read_text())))


@functools.cache
def imported_by(module: str) -> set[str]:
    """The modules of the package that a file imports, in its functions too."""
    found = set()
    for node in nodes_of(module):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{module} imports relatively"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in whole]
        found |= {name for name in names if name in MODULES}
    return found - {module}


def named_in(module: str) -> set[str]:
    """The modules of the package that texts in a file name as module:function."""
    texts = {node.value for node in nodes_of(module) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text.partition(":")[0] for text in texts if ":" in text} & MODULES.keys()


def place_of(module: str) -> tuple[str, str]:
    """Its room, or "" for the root; and its stage."""
    parts = module.split(".")[1:]
    if not parts or (len(parts) == 1 and not (PACKAGE / parts[0]).is_dir()):
        return "", ""
    return parts[0], parts[1] if parts[0] == "stages" and len(parts) > 1 else ""


@pytest.mark.repository
def test_every_room_and_stage_has_its_arrows():
    rooms = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert rooms == ARROWS.keys() | {"stages"}, "the rooms of motif_jax/ and ARROWS of this file"
    stages = {file.parent.name for file in PACKAGE.glob("stages/*/__init__.py")}
    stages |= {file.stem for file in PACKAGE.glob("stages/*.py")} - {"__init__"}
    assert stages == STAGES.keys(), "what lies in motif_jax/stages/, and STAGES of this file"
    list(graphlib.TopologicalSorter(ARROWS).static_order())  # raises at a circle
    list(graphlib.TopologicalSorter(STAGES).static_order())


def test_imports_follow_the_arrows():
    for module in MODULES:
        room, stage = place_of(module)
        for other in imported_by(module):
            its_room, its_stage = place_of(other)
            if room in BELOW_ALL and not its_room:
                assert other in ROOT_OF_ALL, f"{module} imports {other}, which is above it"
            if its_room in BELOW_ALL:
                assert room not in BELOW_ALL or BELOW_ALL.index(its_room) <= BELOW_ALL.index(room), (module, other)
                continue
            complaint = f"{module} imports {other}, which tests/import_order_test.py does not allow"
            if not its_room or its_room == room != "stages":
                above = ABOVE_ALL - ({"run"} if room in ("stages", "contrib", "pages") else set())
                assert other.split(".")[-1] not in above or not room, complaint
            elif room == "stages":
                assert its_room != "stages" or its_stage in ("", stage, *STAGES.get(stage, ())), complaint
            elif not room:
                assert module.split(".")[-1] in ABOVE_ALL, complaint
            else:
                assert its_room in ARROWS[room], complaint


def test_the_report_imports_run_and_pages_alone():
    """Beside what every stage needs to be one: its config, the console, and the files below all rooms."""
    for module in MODULES:
        if place_of(module) == ("stages", "report"):
            rooms = {place_of(other)[0] for other in imported_by(module)}
            assert rooms <= {"", "stages", "pages", *BELOW_ALL}, module


def folder_of(module: str) -> str:
    """The folder of contrib that a module lies in, or ""."""
    _, room, *folder = [*module.split("."), "", ""]
    return folder[0] if room == "contrib" else ""


@pytest.mark.repository
def test_core_never_imports_contrib_and_does_not_know_its_names():
    for module in MODULES:
        if place_of(module)[0] != "contrib":
            assert "contrib" not in {place_of(other)[0] for other in imported_by(module)}, module
            assert "contrib" not in {place_of(other)[0] for other in named_in(module)}, module
            read = [node for node in nodes_of(module) if isinstance(node, ast.Subscript)]
            assert not [node for node in read if ast.unparse(node.value).endswith(".plugins")], module
    known = {(module, name) for module in MODULES for name in compared_in(module) & set().union(*OF_CONTRIB.values())
             if name not in OF_CONTRIB.get(folder_of(module), ())}  # fmt: skip
    assert known == OTHER_WORDS.keys()


ENGLISH = {  # names in contrib that are words of many sentences
    "audit", "challenge", "comments", "exercises", "export", "films", "guessing", "protocols", "readers", "words",
    "options", "group_advantages", "code",
}  # fmt: skip


@pytest.mark.repository
def test_texts_of_core_do_not_name_what_is_in_contrib():
    """In comments, meanings and messages; what had another name is in a table."""
    files = {file for module, file in MODULES.items() if not folder_of(module) and file.name != "renamed.py"}
    known = "|".join(map(re.escape, sorted(set().union(*OF_CONTRIB.values()) - ENGLISH - RECIPES.keys())))
    for file in {*files, *CONTRIB.parents[1].glob("configs/*.py")}:
        assert not re.findall(rf"(?<![\w.])(?:{known})\b|\bcontrib/\w", file.read_text()), file


def test_pages_know_no_figure_of_a_world():
    """What they say of it is the world's own (`Meaning`)."""
    figures = {name for world in names.WORLDS for name in make_world({"world": world}).figures}
    assert {"score", "guesses"} <= figures
    for module in MODULES:
        if place_of(module)[0] == "pages" or module in ("motif_jax.stages.report", "motif_jax.stages.evaluate.results"):
            found = {node.value for node in nodes_of(module) if isinstance(node, ast.Constant)} & figures
            assert found <= {FAMILY}, module


def test_a_folder_of_contrib_imports_another_one_only_if_its_first_line_says_so():
    for module in MODULES:
        if folder := folder_of(module):
            document = ast.get_docstring(ast.parse((PACKAGE / "contrib" / folder / "__init__.py").read_text()))
            others = {folder_of(other) for other in imported_by(module) | named_in(module)} - {folder, ""}
            said = {other for other in others if f"contrib/{other}" in (document or "").partition("\n")[0]}
            assert others == said, f"{module} imports {others - said}"


def test_every_short_name_is_of_something_that_exists():
    for table in TABLES_OF_NAMES:
        assert all(names.import_named(path) for path in table.values())


# Where these names mean something else, or are looked up.
OTHER_MEANINGS = {
    ("motif_jax.rewards.registry", "learnt"): "it looks sources up",
    ("motif_jax.devices.releases", "learnt"): "a release keeps this source's arrays as its reward",
    ("motif_jax.contrib.comments.world", "lexicon"): "its own table of scorers",
    ("motif_jax.contrib.comments.world", "server"): "the same",
}


OTHER_WORDS = {  # where the name of something in contrib means something else
    ("motif_jax.stages.train_language", "words"): "a template",
}


def constants_of(module: str) -> dict[str, Any]:
    """The texts that a file's constants stand for: `ONE, OTHER = "one", "other"`."""
    found = {}
    for node in ast.parse(MODULES[module].read_text()).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                both = (target, node.value)
                pairs = zip(*(side.elts for side in both)) if all(isinstance(s, ast.Tuple) for s in both) else [both]
                found |= {name.id: text.value for name, text in pairs
                          if isinstance(name, ast.Name) and isinstance(text, ast.Constant)}  # fmt: skip
    return found


def compared_in(module: str) -> set[str]:
    """The texts that a file compares something with, or matches."""
    known = constants_of(module)
    for node in nodes_of(module):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            of_other = constants_of(node.module)
            known |= {one.asname or one.name: of_other[one.name] for one in node.names if one.name in of_other}
    found = set()
    for node in nodes_of(module):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [node.value] if isinstance(node, ast.MatchValue) else []
        for side in sides:
            for one in side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]:
                found.add(one.value if isinstance(one, ast.Constant) else known.get(getattr(one, "id", "")))
    return {text for text in found if isinstance(text, str)}


@pytest.mark.repository
def test_names_are_looked_up_and_not_compared():
    """What is particular about a world, a network, an algorithm, a judge or a source is an answer of its object."""
    registered = {name for table in (*TABLES_OF_NAMES, RECIPES, JUDGED) for name in table}
    registered |= {*FIXED, *BY_SPECS}
    registered -= names.STAGES.keys() | names.API.keys() | set().union(*OF_CONTRIB.values())
    registered -= {"reference", "random", "score", "count", "return", "model", "linear"}  # words of many values
    found = {(module, name) for module in MODULES for name in compared_in(module) & registered}
    assert found == OTHER_MEANINGS.keys()


def test_a_config_is_a_dataclass_behind_the_command_line():
    found = {module for module in MODULES for node in nodes_of(module)
             if isinstance(node, ast.ImportFrom) and node.module == "ml_collections"}  # fmt: skip
    assert found <= {"motif_jax.launch", "motif_jax.config.file"}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def own_lines(function: ast.AST) -> int:
    """Lines of a function without those of its docstring and of functions within it."""
    inner = [node for node in ast.walk(function) if isinstance(node, FUNCTIONS) and node is not function]
    placed = [node for node in ast.iter_child_nodes(function) if hasattr(node, "lineno")]
    lines = {line for node in placed for line in range(node.lineno, node.end_lineno + 1)}
    for node in inner:
        lines -= {*range(node.lineno, node.end_lineno + 1)}
    if ast.get_docstring(function):
        lines -= {*range(function.body[0].lineno, function.body[0].end_lineno + 1)}
    return len(lines)


def test_a_function_is_read_at_a_glance():
    long = {
        (module, node.name)
        for module in MODULES
        for node in nodes_of(module)
        if isinstance(node, FUNCTIONS) and own_lines(node) > 60
    }
    assert long == {("motif_jax.stages.train_policy.loop", "learn")}  # the training loop, from top to bottom


def test_every_module_is_used():
    """A new file that nobody imports was forgotten where it belongs: in a table, a list or a stage."""
    used = set().union(*(imported_by(module) for module in MODULES))
    assert not used & FROM_OUTSIDE.keys(), "FROM_OUTSIDE in tests/import_order_test.py names what the package imports"
    used |= {f"motif_jax.stages.{name}" for name in NAMES}
    used |= FROM_OUTSIDE.keys() | set().union(*(named_in(module) for module in MODULES))
    used |= {module for module, file in MODULES.items() if file.name == "__init__.py"}
    unused = sorted(MODULES.keys() - used)
    assert not unused, f"nothing imports {unused}, and no table names them"


def test_no_files_import_each_other_in_a_circle():
    list(graphlib.TopologicalSorter({module: imported_by(module) for module in MODULES}).static_order())


def test_the_package_works_without_the_benchmarks():
    """They import its rooms; an installation does not have them."""
    for module in MODULES:
        found = {node.value for node in nodes_of(module) if isinstance(node, ast.Constant)}
        found |= {node.module for node in nodes_of(module) if isinstance(node, ast.ImportFrom)}
        found |= {one.name for node in nodes_of(module) if isinstance(node, ast.Import) for one in node.names}
        assert not any(isinstance(text, str) and text.split(".")[0] == "benchmarks" for text in found), module


def test_nobody_imports_the_facade():
    assert {module for module in MODULES if "motif_jax.api" in imported_by(module)} == {"motif_jax"}


@pytest.mark.parametrize("module", ["actors.worker", "launch", "experiment; motif_jax.experiment.tables()"])
def test_workers_and_the_values_of_the_config_never_load_jax(module):
    code = f"import sys, motif_jax.{module}; print([m for m in ('jax', 'flax', 'torch', 'orbax') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_nothing_is_unpickled_and_no_shell_is_run():
    refused = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "redis"}
    for module in MODULES:
        for node in nodes_of(module):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                assert not refused & {name.partition(".")[0] for name in names}, module
            if isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
                assert ast.unparse(node.value) == "False", f"{module} sets {node.arg}"
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) not in ("os.system", "os.popen"), module
