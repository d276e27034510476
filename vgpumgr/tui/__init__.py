"""``vgpumgr top``: what GPUs, slices and VMs do, as a picture of text; the terminal's part is ``app``."""
