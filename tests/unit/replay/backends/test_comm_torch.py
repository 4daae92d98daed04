"""Joining the other ranks of a replay."""

import pytest

from chakra_et.errors import ReplayError
from chakra_et.replay.options import ConnectOptions

pytest.importorskip("torch")

from chakra_et.replay.backends.comm_torch import connect


def test_gpus_that_are_not_there_are_told_before_ranks_wait_for_each_other():
    with pytest.raises(ReplayError, match="rank 99: expected a GPU for each rank of a server, got "):
        connect(ConnectOptions(backend="nccl", device=99), rank=99, world_size=100, groups=())
