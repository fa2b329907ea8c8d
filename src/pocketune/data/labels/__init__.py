"""Read which photos there are and their labels: from folders, tables and lists."""
