"""Mediated devices and vendor-VFIO vGPU types. Nothing is built here yet."""
