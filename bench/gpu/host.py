"""What vgpumgr and NVML say of this host: nothing is changed."""

from __future__ import annotations

import contextlib
import subprocess
import sys

COMMANDS = (
    ["gpu", "list"], ["gpu", "list", "-o", "json"], ["gpu", "show", "0"], ["gpu", "show", "0", "-o", "json"],
    ["mig", "profiles"], ["mig", "list"], ["status"], ["doctor"], ["doctor", "-o", "json"],
    ["attach", "vm01", "--profile", "1g.10gb", "--dry-run"], ["run", "--profile", "1g.10gb", "--dry-run", "--", "true"],
)  # fmt: skip


def run(words: list[str]) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", timeout=60, check=False
    )
    print(
        f"\n$ {' '.join(words[-6:])}: {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-2500:]}",
        flush=True,
    )


def ask_nvml() -> None:
    """Every reading function of NVML that takes the device alone, and MIG's profiles."""
    import pynvml as n

    n.nvmlInit()
    device = n.nvmlDeviceGetHandleByIndex(0)
    print("driver", n.nvmlSystemGetDriverVersion(), "cuda", n.nvmlSystemGetCudaDriverVersion())
    for name in sorted(vars(n)):
        if name.startswith("nvmlDeviceGet") and "Handle" not in name and "Samples" not in name:
            with contextlib.suppress(TypeError):
                try:
                    print(name, "=", getattr(n, name)(device))
                except n.NVMLError as error:
                    print(name, "!", error)
                except Exception as error:
                    print(name, "?", repr(error)[:100])
    for profile in range(16):
        try:
            info = n.nvmlDeviceGetGpuInstanceProfileInfo(device, profile)
            print("profile", profile, {k: getattr(info, k) for k, _ in info._fields_})
            print(
                "  placements",
                [
                    (p.start, p.size)
                    for p in n.nvmlDeviceGetGpuInstancePossiblePlacements(device, info.id)
                ],
            )
        except Exception as error:
            print("profile", profile, "!", error)


def main() -> int:
    for words in (
        ["nvidia-smi"],
        ["nvidia-smi", "-q"],
        ["uname", "-a"],
        ["ls", "-la", "/dev"],
        ["ldconfig", "-p"],
        ["cat", "/proc/driver/nvidia/version"],
        ["sh", "-c", "cat /proc/driver/nvidia/gpus/*/information"],
        [
            "sh",
            "-c",
            "lspci -nn | head -40; ls /sys/bus/pci/devices; ls /usr/local/nvidia/lib64 | head -80",
        ],
    ):
        with contextlib.suppress(OSError):
            run(words)
    for words in COMMANDS:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            run([sys.executable, "-m", "vgpumgr", *words])
    ask_nvml()
    return 0


if __name__ == "__main__":
    sys.exit(main())
