"""No test depends on how fast the machine is: pytest's deadline is the only one, and no measured time is compared."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick
TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
WAITS = {"alarm", "communicate", "join", "result", "setitimer", "wait"}
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
MEASURED = re.compile(r"(.*[/_.])?(seconds|elapsed|\w+_per_s)")
DEADLINE = re.compile(r"^\w*(DEADLINE|PATIENCE|TIMEOUT)\w*(: \w+)? = [0-9.]+$")


def names_a_time(node: ast.AST) -> bool:
    """Whether an expression takes a measured time from a row, a mapping or an object."""
    names = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    names += [part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    return any(MEASURED.fullmatch(name) for name in names)


def problem(node: ast.AST) -> str:
    """What is wrong with a node of a test's syntax tree; "" nothing."""
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        if owner == "time" and node.attr.removesuffix("_ns") in CLOCKS:
            return "reads a clock: wait for an event or a condition (conftest.wait_for)"
        if (owner, node.attr) in (("pytest.mark", "timeout"), ("asyncio", "wait_for")):
            return "is a deadline of its own: pytest's is enough (pyproject.toml)"
    if isinstance(node, ast.Assign | ast.AnnAssign) and DEADLINE.search(ast.unparse(node)):
        return "is a deadline of its own: pytest's is enough (pyproject.toml)"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        number = name in WAITS and any(
            isinstance(value, ast.Constant) and isinstance(value.value, (int, float)) for value in node.args
        )
        if number or any(keyword.arg == "timeout" for keyword in node.keywords):
            return "is a deadline of its own: pytest's is enough (pyproject.toml)"
    ordered = isinstance(node, ast.Compare) and any(isinstance(order, ORDERS) for order in node.ops)
    if ordered and any(map(names_a_time, (node.left, *node.comparators))):
        return "compares a measured time, which says nothing on a busy machine"
    return ""


def problems(text: str) -> list[str]:
    """The lines of a test that depend on the machine's speed."""
    nodes = ast.walk(ast.parse(text))
    return [f"{node.lineno}: {ast.unparse(node)} {found}" for node in nodes if (found := problem(node))]


@pytest.mark.parametrize("file", sorted(set(TESTS.rglob("*.py"))), ids=lambda file: str(file.relative_to(TESTS)))
def test_nothing_depends_on_the_speed_of_the_machine(file):
    assert problems(file.read_text()) == []
