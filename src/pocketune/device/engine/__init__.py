"""Engines, which compute gradients and predictions."""
