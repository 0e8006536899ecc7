import pytest

from motif_jax.system import sizing
from motif_jax.system.sizing import Gpu, find_gpu, size_run

pytestmark = pytest.mark.quick
H200 = Gpu("H200", 1, 100_000)


@pytest.mark.parametrize(("cores", "gpu", "sizes"), [
    (2, None, ("small", "float32", 2, 32, 1024, True)),  # 64 games
    (16, None, ("small", "float32", 16, 4, 1024, True)),
    (16, H200, ("reference", "bfloat16", 15, 128, 8192, False)),  # 15 * 6,500 / 10 = 9,750
    (64, H200, ("reference", "bfloat16", 63, 128, 16_384, False)),
    (2, H200, ("reference", "bfloat16", 1, 128, 2048, False)),
    (16, Gpu("small", 1, 2000), ("reference", "bfloat16", 15, 128, 4096, False)),  # (2,000 - 1,024) / 0.15 = 6,507
    (16, Gpu("four", 4, 100_000), ("reference", "bfloat16", 15, 128, 32_768, False)),
])  # fmt: skip
def test_sizes_follow_cores_and_memory(cores, gpu, sizes):
    assert size_run(cores, gpu) == sizes


@pytest.mark.parametrize(("free", "jax", "gpu", "reason"), [
    (90_000, 'print(\'["gpu", 2, 70000]\')', Gpu("NVIDIA H", 2, 70_000), ""),
    (3000, 'print(\'["gpu", 1, 70000]\')', Gpu("NVIDIA H", 1, 3000), ""),
    ("[N/A]", 'print(\'["gpu", 1, 70000]\')', Gpu("NVIDIA H", 1, 70_000), ""),
    (90_000, "raise SystemExit('no CUDA driver')", None, "cannot use the GPU (NVIDIA H): no CUDA driver"),
    (90_000, None, None, "its CUDA libraries are missing"),  # JAX itself, which has none here
])  # fmt: skip
def test_a_gpu_counts_if_jax_starts_on_it(tmp_path, monkeypatch, capsys, free, jax, gpu, reason):
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\n[ $3 = --id=1 ] && echo 'NVIDIA H, {free}'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("JAX_PLATFORMS", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    if jax:
        monkeypatch.setattr(sizing, "PROBE", jax)
    find_gpu.cache_clear()
    found, words = find_gpu()
    assert found == gpu
    assert reason in words
    sizing.main()
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1  # one line says why
    driver.write_text("#!/bin/sh\necho a GPU of another kind, 1\n")
    monkeypatch.setenv(sizing.KNOWN, printed.out.strip())  # as scripts do for the programs that they start
    find_gpu.cache_clear()
    assert find_gpu() == (gpu, "")
    find_gpu.cache_clear()
