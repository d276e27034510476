"""vGPUs: mediated devices and vendor-VFIO functions, as one kind of thing."""
