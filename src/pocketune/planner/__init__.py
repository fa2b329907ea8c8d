"""Choosing what to train on a user's photos, within limits of memory and time."""
