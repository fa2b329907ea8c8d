"""Kits that could be built: networks whose weights are to be had, at several resolutions."""
