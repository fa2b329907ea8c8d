"""Any network seen as stem, blocks, feature fusion and classifier."""
