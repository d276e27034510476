"""Layout files: our own format, nvidia-mig-parted's, and its checkpoints. Text in, models out."""
