"""What training whole networks over Lightning Fabric has in common: devices, teacher, progress."""
