"""The coordinator's address and this process's number among the hosts, from the config or from SLURM's variables.

They are checked before JAX is loaded, which would wait for minutes for unreachable hosts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.console import clean
from motif_jax.structs import UserError

FLAG = "--config.distributed.coordinator"
SLURM_FLAG = f"{FLAG}=slurm"
COUNT_FLAGS = "--config.distributed.num_processes, .process_id"
PORTS = 2**12  # the last ports; like JAX, we choose among them by the job's number


class Meeting(NamedTuple):
    """The coordinator's address, and this process's number."""

    host: str  # name or address of the first host
    port: int
    num_processes: int
    process_id: int
    device: int | None = None  # the single device of the machine that this process uses; None: all devices
    flag: str = FLAG  # for error messages

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find_meeting(section: Any, environment: Mapping[str, str] = os.environ) -> Meeting | None:
    """Returns the meeting, or None for a single process; raises UserError for invalid values."""
    named, count, process_id = section.coordinator, section.num_processes, section.process_id
    if named == "auto":
        tasks = "SLURM_STEP_NUM_TASKS"
        named = "slurm" if whole_number(tasks, environment.get(tasks) or "1", FLAG) > 1 else ""
    if named == "slurm":
        try:
            meeting = meeting_of_tasks(environment)
        except (KeyError, ValueError) as error:
            raise UserError(f"SLURM did not start this process: {error} is not set ({SLURM_FLAG})") from error
        if count not in (1, meeting.num_processes) or process_id not in (0, meeting.process_id):
            here = f"process {meeting.process_id} of {meeting.num_processes}"
            raise UserError(f"SLURM started this as {here}, not as process {process_id} of {count} ({COUNT_FLAGS})")
        return meeting
    if process_id >= count:
        raise UserError(f"process_id {process_id} must be below num_processes {count} ({COUNT_FLAGS})")
    if named:
        return Meeting(*split_address(named, FLAG), count, process_id)
    if count > 1:
        raise UserError(f"{count} processes need the address of process 0, host:port ({FLAG}, .num_processes)")
    return None


def meeting_of_tasks(environment: Mapping[str, str]) -> Meeting:
    """Returns the meeting of a SLURM job step: on its first node, at the port that JAX would use."""

    def number(name: str) -> int:
        return whole_number(name, environment[name], SLURM_FLAG)

    count = number("SLURM_STEP_NUM_TASKS" if environment.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS")
    process_id = number("SLURM_PROCID")
    if process_id >= count:
        raise UserError(f"SLURM_PROCID is {process_id}, but the job step has {count} tasks ({SLURM_FLAG})")
    device = None  # a node's only task uses all devices
    if environment.get("SLURM_STEP_NUM_NODES") != str(count):
        device = number("SLURM_LOCALID")
    if address := environment.get("JAX_COORDINATOR_ADDRESS"):
        return Meeting(*split_address(address, "JAX_COORDINATOR_ADDRESS"), count, process_id, device, SLURM_FLAG)
    nodes = environment["SLURM_STEP_NODELIST"]
    first = re.match(r"([^,\[]+)(?:\[([^],-]+)[],-])?", nodes)  # node1,node2 or node[01-04,07],other
    if first is None:
        raise KeyError("SLURM_STEP_NODELIST")
    host = f"{first[1]}{first[2] or ''}"
    if named := environment.get("JAX_COORDINATOR_PORT"):
        _, port = split_address(f"{host}:{named}", "JAX_COORDINATOR_PORT")
    else:
        port = 2**16 - PORTS + number("SLURM_JOB_ID") % PORTS
    return Meeting(host, port, count, process_id, device, SLURM_FLAG)


def whole_number(name: str, text: str, flag: str) -> int:
    """The number in a variable of SLURM's; raises UserError for another text."""
    if not re.fullmatch("[0-9]{1,18}", text):
        raise UserError(f"the variable {name} is {clean(repr(text), 100)}, not a whole number ({flag})")
    return int(text)


def split_address(text: str, name: str) -> tuple[str, int]:
    """Splits `host:port`; for anything else raises UserError with `name`, the flag or variable."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if host and port.isdecimal() and 0 < int(port) < 2**16:
        return host, int(port)
    raise UserError(f"give host:port, not {clean(repr(text), 100)} ({name})")
