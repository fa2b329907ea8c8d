"""What a run takes: estimated before, measured while it trains."""
