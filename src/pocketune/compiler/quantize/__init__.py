"""The frozen part in 8 bits."""
