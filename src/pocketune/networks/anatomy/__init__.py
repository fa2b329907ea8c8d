"""Any network seen as stem, blocks, head and classifier."""
