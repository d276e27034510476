"""vgpumgr: GPUs of a KVM host for its virtual machines."""

__version__ = "0.1.0"
