"""libvirt domains: typed XML, PCI slots, and the act of attaching. No policy: nothing here chooses
a GPU.
"""
