"""Features of the frozen part, computed once for each photo and draw."""
