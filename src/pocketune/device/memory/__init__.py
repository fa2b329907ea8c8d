"""The memory of a run: estimated before it starts, measured while it trains."""
