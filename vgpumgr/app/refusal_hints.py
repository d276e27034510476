"""Making a refusal clearer with what the machine knows: lost GPUs, names that were nearly written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vgpumgr.app.parts import Parts
from vgpumgr.app.vf_hints import explain_vfs_off, list_vfs_off
from vgpumgr.errors import (
    GpuNotFoundError,
    UsageError,
    VgpumgrError,
    VgpuNoRoomError,
    VgpuNotSupportedError,
    VgpuTypeNotFoundError,
)
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.gpu import Inventory
from vgpumgr.model.request import VgpuRequest, parse_profile_request
from vgpumgr.model.text import list_near
from vgpumgr.steps.vgpu import list_holders

#: profiles that every machine knows
_WORDS = ("passthrough", "vf")


@contextlib.contextmanager
def explaining(parts: Parts, gpu: str | None, profile: str | None = None) -> Iterator[None]:
    """Around planning: a GPU that has fallen off is called lost, not unknown; a profile that nobody
    knows gets the names that look like it, and a vGPU type that waits for virtual functions the
    command that enables these. Who keeps the room of vGPUs that were removed is named. Nothing is
    asked unless something is refused.
    """
    try:
        yield
    except GpuNotFoundError as error:
        inventory = _read(parts)
        if gpu is not None and inventory is not None and inventory.lost:
            with contextlib.suppress(GpuNotFoundError):
                select_gpu(inventory.gpus, gpu, inventory.lost)
        if gpu is not None:
            with contextlib.suppress(VgpumgrError):  # it only explains
                _tell_taken(parts, gpu, error)
        raise error from error.__cause__
    except VgpuNoRoomError as error:
        error.held_by = tuple(dict.fromkeys((*error.held_by, *_list_room_holders(parts))))
        if profile is not None and (found := list_vfs_off(parts, profile, gpu)):
            told = f"{error.why}; " if error.why else ""
            error.why = f"{told}{found[0].gpu} would have room with its virtual functions"
            error.hint = found[0].commands
        raise
    except (UsageError, VgpuNotSupportedError, VgpuTypeNotFoundError) as error:
        if profile is not None and (found := list_vfs_off(parts, profile, gpu)):
            raise explain_vfs_off(found, error.error) from error
        near = _list_near(parts, profile) if profile is not None else []
        if near:
            told = f"{error.why}; " if error.why else ""
            error.why = f"{told}did you mean {' or '.join(near)}?"
        raise


def _list_room_holders(parts: Parts) -> list[str]:
    """Who has vGPUs of ours open that the kernel does not show any more."""
    found: list[str] = []
    with contextlib.suppress(VgpumgrError):
        for record in parts.vgpu_store.list_vgpus():
            if record.takes_room and parts.vgpus.find_device(record.spec) is None:
                found += list_holders(parts.vgpus, record)
    return found


def _tell_taken(parts: Parts, name: str, error: VgpumgrError) -> None:
    """Says of a GPU that was taken from NVML where it is now, and who has it."""
    text = name.strip().lower()
    for binding in parts.pci.list_bindings():
        names = {str(binding.gpu_index), (binding.gpu_uuid or "").lower()}
        if binding.boot_id != parts.pci.boot_id or text not in names or not text:
            continue
        model = f" ({binding.model})" if binding.model else ""
        error.why = f"it was {binding.address}{model}, which was given to {binding.driver}"
        devices = ((r, d) for r in parts.store.list_attachments() for d in r.host_devices)
        error.held_by = tuple(
            f'vm "{r.vm_name}" ({r.profile})' for r, d in devices if d.address == binding.address
        )
        error.hint = f"--gpu {binding.address}; or vgpumgr passthrough unbind {binding.address}"


def _list_near(parts: Parts, profile: str) -> list[str]:
    with contextlib.suppress(ValueError):
        if not isinstance(parse_profile_request(profile), VgpuRequest):
            return []
    inventory = _read(parts)
    names = {str(p.name): None for g in (inventory.gpus if inventory else ()) for p in g.profiles}
    return list_near(profile.strip().lower(), [*names, *_WORDS], n=3, cutoff=0.7)


def _read(parts: Parts) -> Inventory | None:
    try:
        return parts.read_inventory()
    except VgpumgrError:
        return None
