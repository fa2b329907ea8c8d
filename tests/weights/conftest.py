import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Small networks are not worth threads, which wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
