"""IOMMU groups, driver binding and SR-IOV. Nothing is built here yet."""
