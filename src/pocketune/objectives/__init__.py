"""The losses of tasks in PyTorch."""
