"""The architectures, one file each; importing one registers it."""
