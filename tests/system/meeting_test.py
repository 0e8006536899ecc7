from types import SimpleNamespace

import pytest
from conftest import refusal

from motif_jax.system.meeting import COUNT_FLAGS, FLAG, find_meeting
from motif_jax.system.runs import plan, share_of_job

pytestmark = pytest.mark.quick
TASK = {
    "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "987654", "SLURM_STEP_NODELIST": "n[001-015],b2",
}  # fmt: skip
ARRAY = {
    f"SLURM_ARRAY_TASK_{name}": value for name, value in (("COUNT", "3"), ("MIN", "1"), ("STEP", "2"), ("ID", "5"))
}
BEYOND = [{"process_id": 1}, {"num_processes": 2, "process_id": 2}]
ADDRESSES = ["here", ":80", "here:0", "here:65536", "here:²", "here:8\n0"]


def section(**values):
    return SimpleNamespace(**{"coordinator": "auto", "num_processes": 1, "process_id": 0} | values)


@pytest.mark.parametrize(("nodes", "first"), [
    ("node001", "node001"), ("node001,b2", "node001"), ("n[001-015],b2", "n001"), ("gpu-[7,9-12]", "gpu-7"),
    ("a-b[03]", "a-b03"), ("10.0.0.1", "10.0.0.1"),
])  # fmt: skip
def test_slurm_tasks_meet_on_the_first_node_at_a_port_of_the_job(nodes, first):
    """The port is the one that JAX itself would choose."""
    assert find_meeting(section(), TASK | {"SLURM_STEP_NODELIST": nodes}).address == f"{first}:61958"


def test_tasks_of_one_node_share_its_devices_and_a_single_task_has_all():
    found = find_meeting(section(), TASK)
    assert (found.num_processes, found.process_id, found.device) == (4, 3, 1)
    assert find_meeting(section(), TASK | {"SLURM_STEP_NUM_NODES": "4"}).device is None
    assert find_meeting(section(), TASK | {"JAX_COORDINATOR_PORT": "7000"}).address == "n001:7000"
    without = {name: value for name, value in TASK.items() if name != "SLURM_STEP_NUM_TASKS"}
    assert find_meeting(section(coordinator="slurm"), without | {"SLURM_NTASKS": "8"}).num_processes == 8


@pytest.mark.parametrize(("coordinator", "environment"), [
    ("auto", {}), ("auto", {"SLURM_STEP_NUM_TASKS": ""}), ("auto", {"SLURM_STEP_NUM_TASKS": "1"}), ("", TASK),
])  # fmt: skip
def test_a_process_works_alone(coordinator, environment):
    assert find_meeting(section(coordinator=coordinator), environment) is None


@pytest.mark.parametrize("value", ["0", "4", "7"])
def test_no_task_of_a_job_array_does_the_runs_of_another(value):
    runs = plan("7", [], 0)
    shares = [share_of_job(runs, ARRAY | {"SLURM_ARRAY_TASK_ID": task}) for task in "135"]
    assert [[run.seed for run in share] for share in shares] == [[0, 3, 6], [1, 4], [2, 5]]
    assert share_of_job(runs, {}) == runs
    refusal(lambda: share_of_job(runs, ARRAY | {"SLURM_ARRAY_TASK_ID": value}), "SLURM_ARRAY_TASK_ID", "--config.seeds")


@pytest.mark.parametrize("changes", [
    *({name: value} for name in ("COUNT", "ID", "MIN", "STEP") for value in ("x", "-1", "1.5")),
    {"ID": ""}, {"MIN": "6", "STEP": "1"}, {"STEP": "0"},
], ids=str)  # fmt: skip
def test_variables_of_a_job_array_that_cannot_be_are_one_sentence(changes):
    environment = ARRAY | {f"SLURM_ARRAY_TASK_{name}": value for name, value in changes.items()}
    refusal(lambda: share_of_job(plan("7", [], 0), environment), "SLURM_ARRAY_TASK_", "(--config.seeds, --sweep)")


REFUSED = [
    *(({"coordinator": value}, {}, (FLAG, repr(value)[:20])) for value in ADDRESSES),
    ({}, {"JAX_COORDINATOR_ADDRESS": "here"}, ("JAX_COORDINATOR_ADDRESS", "'here'")),
    *(({}, {name: value}, (name, value)) for name in ["JAX_COORDINATOR_PORT"] for value in ("abc", "70000", "-1")),
    *(({}, {f"SLURM_{name}": value}, (f"the variable SLURM_{name} is {value!r}, not a whole number", FLAG))
      for name in ("STEP_NUM_TASKS", "PROCID", "LOCALID", "JOB_ID") for value in ("x", "-1", "1.5", "9" * 20)),
    ({"coordinator": "slurm"}, {"SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS": "x"}, ("SLURM_NTASKS is 'x'", FLAG)),
    ({}, {"SLURM_PROCID": "4"}, ("SLURM_PROCID is 4, but the job step has 4 tasks", FLAG)),
    *(({"coordinator": "here:1"} | values, {}, ("must be below num_processes",)) for values in BEYOND),
    # Processes that would not meet, and each train alone.
    *(({"coordinator": ""} | values, {}, ("must be below num_processes",)) for values in BEYOND),
    ({"num_processes": 2}, {"SLURM_STEP_NUM_TASKS": "1"}, (FLAG, "2 processes need the address of process 0")),
    ({"coordinator": "", "num_processes": 2, "process_id": 1}, {}, (FLAG, "2 processes need the address")),
    ({"num_processes": 2}, {}, ("as process 3 of 4, not as process 0 of 2", COUNT_FLAGS)),
    ({"process_id": 1}, {}, ("as process 3 of 4, not as process 1 of 1", COUNT_FLAGS)),
]  # fmt: skip


@pytest.mark.parametrize(("values", "changes", "said"), REFUSED)
def test_an_impossible_meeting_is_one_sentence_that_can_be_printed(values, changes, said):
    assert len(refusal(lambda: find_meeting(section(**values), TASK | changes), *said)) < 300
