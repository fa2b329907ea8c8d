"""How labeled images lie on a disk: in class folders, or listed in a table."""
