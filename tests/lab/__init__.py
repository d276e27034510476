"""The lab host: Debian's kernel with an IOMMU, SR-IOV, mediated devices and a libvirtd of its own, under QEMU's TCG.

See docs/lab.md. Nothing here needs hardware or KVM; ``python -m tests.lab shell`` gives a shell in it.
"""
