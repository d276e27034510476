"""GPUs, NVML, helper processes, the host, machines, PCI functions, vGPUs and host devices of VMs."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG10x: choosing a GPU, a profile, a place for it


class UsageError(VgpumgrError, id="VG100", exit_code=Exit.USAGE):
    """What was typed cannot be meant: an unknown word, a value of the wrong form."""


class GpuNotFoundError(VgpumgrError, id="VG101", exit_code=Exit.NOT_FOUND):
    """No GPU has the index, UUID, prefix or address that was given."""


class GpuAmbiguousError(VgpumgrError, id="VG102", exit_code=Exit.USAGE):
    """More than one GPU answers to the prefix that was given."""


class ProfileNotFoundError(VgpumgrError, id="VG103", exit_code=Exit.NOT_FOUND):
    """No GPU of this machine offers a profile of that name."""


class NoRoomError(VgpumgrError, id="VG104", exit_code=Exit.BUSY):
    """GPUs offer the profile, but none has capacity for one more."""


class MigNotSupportedError(VgpumgrError, id="VG105", exit_code=Exit.NOT_SUPPORTED):
    """The GPU has no MIG."""


class MigModePendingError(VgpumgrError, id="VG106", exit_code=Exit.PENDING):
    """The change of MIG mode waits for a reset of the GPU."""


class GpuDrainedError(VgpumgrError, id="VG107", exit_code=Exit.BUSY):
    """The GPU is drained: it takes no new slice until it is resumed."""


class GpuUnhealthyError(GpuDrainedError, id="VG109"):
    """The GPU is unhealthy: after an Xid, uncorrectable ECC errors, or while too hot, it takes no new slice."""


class ReadBackError(VgpumgrError, id="VG108"):
    """A call reported success, but reading back shows something else."""


# VG11x: what NVML answers; code and text of NVML stay in the cause


class NvmlError(VgpumgrError, id="VG110"):
    """NVML refused for a reason that has no class of its own."""


class NvmlMissingError(NvmlError, id="VG111", exit_code=Exit.NOT_SUPPORTED, http_status=503):
    """There is no NVML library, or no loaded driver behind it."""


class NvmlNotSupportedError(NvmlError, id="VG112", exit_code=Exit.NOT_SUPPORTED):
    """The GPU or driver does not support the operation."""


class NvmlPermissionError(NvmlError, id="VG113", exit_code=Exit.NOT_PERMITTED):
    """The operation needs rights that this process lacks."""


class NvmlInUseError(NvmlError, id="VG114", exit_code=Exit.BUSY):
    """The GPU or instance is in use; its holders are listed."""


class NvmlInsufficientResourcesError(NvmlError, id="VG115", exit_code=Exit.BUSY):
    """The driver finds no free place for the instance, or the place is taken."""


class NvmlNotFoundError(NvmlError, id="VG116", exit_code=Exit.NOT_FOUND):
    """The driver knows no such GPU or instance (any more)."""


class GpuLostError(NvmlError, id="VG117", http_status=503):
    """The GPU has fallen off the bus or is otherwise out of reach until a reset."""


# VG12x: helper processes


class HelperLateError(VgpumgrError, id="VG120", http_status=504):
    """A call has not come back by its deadline; its process is left alone and may still finish."""


class HelperDiedError(VgpumgrError, id="VG121"):
    """A helper process ended before it answered."""


class TooManyStuckError(VgpumgrError, id="VG122", exit_code=Exit.BUSY, http_status=503):
    """So many helpers are stuck that no new one is started."""


# VG13x: the host


class GpuStuckError(VgpumgrError, id="VG123", exit_code=Exit.BUSY):
    """A helper process has not come back from a call on this GPU; nothing more is begun there."""


class SysfsError(VgpumgrError, id="VG130"):
    """A file under /sys or /proc could not be read or written; errno and path are in the cause."""


class SysfsPermissionError(SysfsError, id="VG131", exit_code=Exit.NOT_PERMITTED):
    """As above, for want of rights."""


class LockHeldError(VgpumgrError, id="VG132", exit_code=Exit.BUSY):
    """Another process holds the lock; it is named."""


class LibraryNotFoundError(VgpumgrError, id="VG133", exit_code=Exit.NOT_SUPPORTED, http_status=500):
    """A part of vgpumgr is not installed, or of another version than the rest."""


class UntrustedPathError(VgpumgrError, id="VG134", exit_code=Exit.NOT_PERMITTED):
    """A file or directory of the program belongs to another user, is a link, or others may write there."""


# VG14x: machines


class MachineNotFoundError(VgpumgrError, id="VG140", exit_code=Exit.NOT_FOUND):
    """No simulated machine of that name runs."""


# VG19x: the program itself


class InternalError(VgpumgrError, id="VG190"):
    """A bug of ours: never what was typed, never the host."""


class HostResourceError(VgpumgrError, id="VG192", http_status=503):
    """The host has no more of something: space on a disk, open files, memory. Nothing is known of more."""


# VG44x: functions and their groups


class PciNotFoundError(VgpumgrError, id="VG440", exit_code=Exit.NOT_FOUND):
    """No PCI function is named so, or it has left the bus."""


class PciAmbiguousError(VgpumgrError, id="VG441", exit_code=Exit.USAGE):
    """More than one PCI function answers to what was given."""


class NoIommuError(VgpumgrError, id="VG442", exit_code=Exit.NOT_SUPPORTED):
    """The kernel uses no IOMMU, so no function can be given to a VM."""


class GroupNotViableError(VgpumgrError, id="VG443", exit_code=Exit.BUSY):
    """Other functions of the IOMMU group belong to the host; they are named."""


class PciBusyError(VgpumgrError, id="VG444", exit_code=Exit.BUSY):
    """The function is in use; its holders are listed."""


class PciWriteError(VgpumgrError, id="VG445"):
    """The kernel refused a write; errno, path and the value written are in the cause."""


class DriverMissingError(VgpumgrError, id="VG446", exit_code=Exit.NOT_SUPPORTED):
    """The driver is not loaded, and its module cannot be."""


class DriverIgnoredError(VgpumgrError, id="VG447"):
    """The kernel accepted the writes, but the function has another driver than was asked for."""


class NotBoundError(VgpumgrError, id="VG448", exit_code=Exit.NOT_FOUND):
    """The function was not taken from the host, so there is nothing to give back."""


class PciStalledError(VgpumgrError, id="VG449", exit_code=Exit.BUSY, http_status=503):
    """A removal waits for its user; what needs the whole PCI core would wait behind it."""


# VG46x: virtual functions


class VfUnsupportedError(VgpumgrError, id="VG460", exit_code=Exit.NOT_SUPPORTED):
    """The function has no virtual functions, or its driver makes none by request."""


class VfCountError(VgpumgrError, id="VG461", exit_code=Exit.USAGE):
    """More virtual functions than the device has, or fewer than one."""


class VfVendorToolError(VgpumgrError, id="VG462", exit_code=Exit.NOT_SUPPORTED):
    """The vendor's own program must do this, and is missing or has failed."""


class VfGrabbedError(VgpumgrError, id="VG463", exit_code=Exit.BUSY):
    """The host's driver took a new virtual function and does not release it."""


class VfIgnoredError(VgpumgrError, id="VG464"):
    """The kernel accepted the write, but another number of virtual functions is there."""


class VfQuotaError(VgpumgrError, id="VG465", exit_code=Exit.NOT_SUPPORTED):
    """The driver has no such quota, or refuses its value."""


# VG40x: vGPUs, their types and parents


class VgpuNotSupportedError(VgpumgrError, id="VG400", exit_code=Exit.NOT_SUPPORTED):
    """This machine has no vGPU framework, or it is switched off."""


class VgpuTypeNotFoundError(VgpumgrError, id="VG401", exit_code=Exit.NOT_FOUND):
    """No parent offers a vGPU type of that name or id."""


class VgpuTypeAmbiguousError(VgpumgrError, id="VG402", exit_code=Exit.USAGE):
    """More than one vGPU type answers to what was given."""


class VgpuNotFoundError(VgpumgrError, id="VG403", exit_code=Exit.NOT_FOUND):
    """There is no vGPU of that UUID, prefix or function."""


class VgpuAmbiguousError(VgpumgrError, id="VG404", exit_code=Exit.USAGE):
    """More than one vGPU answers to the prefix that was given."""


class VgpuNoRoomError(VgpumgrError, id="VG405", exit_code=Exit.BUSY):
    """The type exists, but there is no capacity for one more; what uses it is named."""


class VgpuParentGoneError(VgpumgrError, id="VG406", exit_code=Exit.NOT_FOUND):
    """The parent is gone, or has no driver (any more) that makes vGPUs."""


class VgpuTakenError(VgpumgrError, id="VG407", exit_code=Exit.BUSY):
    """The UUID or the virtual function is in use by another vGPU."""


class VgpuBusyError(VgpumgrError, id="VG408", exit_code=Exit.BUSY):
    """The vGPU is open; its holders are listed."""


class VgpuForeignError(VgpumgrError, id="VG409", exit_code=Exit.BUSY):
    """The vGPU is not ours: another program created or defined it."""


class VgpuAttributeError(VgpumgrError, id="VG410", exit_code=Exit.NOT_SUPPORTED):
    """The driver refused an attribute of the vGPU, or does not have it."""


class VgpuDefinitionError(VgpumgrError, id="VG411"):
    """A definition of mdevctl cannot be read or written; file and cause are named."""


class VgpuDefinedError(VgpumgrError, id="VG412", exit_code=Exit.BUSY):
    """It is defined already, or not defined where it must be."""


class VgpuReleasingError(VgpumgrError, id="VG413", exit_code=Exit.PENDING):
    """It was removed while it was open; removal completes when its holder closes it."""


class VgpuFunctionsOffError(VgpumgrError, id="VG414", exit_code=Exit.NOT_SUPPORTED):
    """The GPU takes vGPUs on virtual functions, and these are not enabled yet."""


# VG48x: giving a VM a device of the host, and taking it back


class DeviceTakenError(VgpumgrError, id="VG480", exit_code=Exit.BUSY):
    """The GPU or the function is another VM's already."""


class NoDeviceError(VgpumgrError, id="VG481", exit_code=Exit.BUSY):
    """No GPU of this machine can be given as was asked; for each of them the reason is said."""


class DisplayImpossibleError(VgpumgrError, id="VG482", exit_code=Exit.NOT_SUPPORTED):
    """A display was asked for, and the VM or the device has none."""


class ReleasePendingError(VgpumgrError, id="VG483", exit_code=Exit.PENDING):
    """The guest has not released the device in time; the detach completes by itself once it has."""


class VfPlaceError(VgpumgrError, id="VG484"):
    """A new virtual function is not where its physical one said that it would be."""


class PreviewImpossibleError(VgpumgrError, id="VG485", exit_code=Exit.NOT_SUPPORTED):
    """The VM's definition cannot be shown as it would be: it has none, or a place is not known yet."""
