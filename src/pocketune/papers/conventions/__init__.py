"""The papers' own ways to count, one file each."""
