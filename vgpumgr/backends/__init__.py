"""How a slice reaches a VM, one file per backend; attach and detach for all of them."""
