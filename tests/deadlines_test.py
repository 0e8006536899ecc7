"""No test depends on how fast the machine is: pytest's deadline is the only one, and no measured time is compared."""

import re
from pathlib import Path

import pytest

MEASURED = r"""(seconds|elapsed|_per_s)["')\]]*"""
SPEED = re.compile(
    r"""(?<!["'.])\btime\.(monotonic|perf_counter|process_time|thread_time|time)(_ns)?\b|\basyncio\.wait_for"""
    r"|\b(alarm|communicate|join|result|setitimer|wait)\([0-9.]|\btimeout=|\bmark\.timeout"
    r"|^\w*(DEADLINE|PATIENCE|TIMEOUT)\w*(: \w+)? = [0-9.]+$"
    rf"|^ +(assert|if|while|elif) .*({MEASURED} *[<>]|[<>]=? .*{MEASURED}$)",
    re.MULTILINE,
)


@pytest.mark.quick
def test_nothing_depends_on_the_speed_of_the_machine():
    """Instead of a clock, wait for an event or a condition (conftest.wait_for)."""
    texts = {file: file.read_text() for file in Path(__file__).parent.rglob("*.py") if file != Path(__file__)}
    assert not {f"{file}: {found[0]}" for file, text in texts.items() for found in SPEED.finditer(text)}
