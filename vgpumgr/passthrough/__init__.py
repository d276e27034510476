"""IOMMU groups, driver binding, whole-function passthrough and SR-IOV."""
