"""Where the hosts of a run meet, and which of them this process is: from the config or from SLURM's variables.

All of it is checked here, before JAX is loaded. JAX would wait for minutes for hosts that cannot come.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.console import clean
from motif_jax.structs import UserError

FLAG = "--config.distributed.coordinator"
SLURM_FLAG = f"{FLAG}=slurm"
LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
LARGEST = 2**31 - 1
PORTS = 2**12  # at the end of all ports; JAX, too, chooses among these by the number of the job


class Meeting(NamedTuple):
    """Where the hosts meet, and which of them this is."""

    host: str  # name or address of the first host, at which all meet
    port: int
    num_processes: int
    process_id: int
    device: int | None = None  # the only device of its machine that this process uses; None: all of them
    flag: str = FLAG  # for error messages

    @property
    def address(self) -> str:
        """As `host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether all hosts are on one machine, so that no other machine needs to reach them."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def find_meeting(section: Any, environment: Mapping[str, str] = os.environ) -> Meeting | None:
    """Returns where the hosts meet, or None if this process works alone.

    Args:
      section: the config's section `distributed`.
      environment: of this process, with SLURM's variables.

    Raises:
      UserError: an address, a number or a variable is impossible.
    """
    named = section.coordinator
    if named == "auto":
        tasks = whole_number(environment, "SLURM_STEP_NUM_TASKS", least=1, default=1)
        named = "slurm" if tasks > 1 else ""
    if not named:
        return None
    if named == "slurm":
        return meeting_of_tasks(environment)
    host, port = split_address(named, FLAG)
    if section.process_id >= section.num_processes:
        raise UserError(
            f"process_id {section.process_id} must be below num_processes {section.num_processes} "
            "(--config.distributed.num_processes, .process_id)"
        )
    return Meeting(host, port, section.num_processes, section.process_id)


def meeting_of_tasks(environment: Mapping[str, str]) -> Meeting:
    """Returns where the tasks of a SLURM job step meet: on its first node, at the port that JAX would use."""
    count_name = "SLURM_STEP_NUM_TASKS" if environment.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    count = whole_number(environment, count_name, least=1)
    process_id = whole_number(environment, "SLURM_PROCID", most=count - 1)
    device = None  # the only task of a node has all of its devices
    if not environment.get("SLURM_STEP_NUM_NODES") or whole_number(environment, "SLURM_STEP_NUM_NODES") != count:
        device = whole_number(environment, "SLURM_LOCALID", most=count - 1)
    address = environment.get("JAX_COORDINATOR_ADDRESS")
    if address:
        return Meeting(*split_address(address, "JAX_COORDINATOR_ADDRESS"), count, process_id, device, SLURM_FLAG)
    if environment.get("JAX_COORDINATOR_PORT"):
        port = whole_number(environment, "JAX_COORDINATOR_PORT", least=1, most=2**16 - 1)
    else:
        port = 2**16 - PORTS + whole_number(environment, "SLURM_JOB_ID", least=1) % PORTS
    nodes = environment.get("SLURM_STEP_NODELIST") or missing("SLURM_STEP_NODELIST")
    first = re.match(r"([^,\[]*)(?:\[([^],-]+)[],-])?", nodes)  # node1,node2 or node[01-04,07],other
    assert first is not None  # it matches everything
    host = f"{first[1]}{first[2] or ''}"
    if not is_host(host) or nodes[first.end() : first.end() + 1] == "[":
        raise UserError(f"SLURM_STEP_NODELIST={clean(repr(nodes), 100)} does not name a host ({SLURM_FLAG})")
    return Meeting(host, port, count, process_id, device, SLURM_FLAG)


def whole_number(
    environment: Mapping[str, str],
    name: str,
    *,
    least: int = 0,
    most: int = LARGEST,
    default: int | None = None,
    flag: str = SLURM_FLAG,
) -> int:
    """Returns a variable of the environment as a whole number; raises UserError if it is impossible.

    Args:
      environment: with the variable.
      name: of the variable.
      least, most: limits of its value.
      default: if the variable is not set or empty; None: it must be set.
      flag: for the error message.
    """
    text = environment.get(name, "")
    if not text:
        return missing(name, flag) if default is None else default
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        limits = f"from {least} to {most}" if most < LARGEST else f"of at least {least}"
        raise UserError(f"{name}={clean(repr(text), 60)} in the environment is not a whole number {limits} ({flag})")
    return int(text)


def missing(name: str, flag: str = SLURM_FLAG) -> Any:
    """Raises UserError for a variable that SLURM sets for its tasks."""
    raise UserError(f"SLURM did not start this process: {name} is not set in the environment ({flag})")


def split_address(text: str, name: str) -> tuple[str, int]:
    """Splits `host:port`; raises UserError, which names the flag or the variable `name`, if it is not an address."""
    host, _, port = text.rpartition(":")
    host, bare = host.removeprefix("[").removesuffix("]"), host
    bracketed = bare == f"[{host}]"
    if is_host(host) and bracketed == (":" in host) and re.fullmatch(r"[1-9][0-9]{0,4}", port) and int(port) < 2**16:
        return host, int(port)
    raise UserError(f"give host:port, not {clean(repr(text), 100)} ({name})")


def is_host(name: str) -> bool:
    """Whether this can be the name or the address of a host."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.removesuffix(".").split(".")
        known = len(name) <= 253 and all(re.fullmatch(LABEL, label) for label in labels)
        return known and not labels[-1].isdecimal()  # a number at the end would make it an address
    return True
