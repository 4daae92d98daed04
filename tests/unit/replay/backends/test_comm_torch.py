"""Joining the other ranks of a replay."""

import pytest

from chakra_et.errors import ReplayError
from chakra_et.replay.options import ConnectOptions

pytest.importorskip("torch")

from chakra_et.replay.backends import comm_torch
from chakra_et.replay.backends.comm_torch import TorchCommunicator, connect


def test_gpus_that_are_not_there_are_told_before_ranks_wait_for_each_other():
    with pytest.raises(ReplayError, match="rank 99: expected a GPU for each rank of a server, got "):
        connect(ConnectOptions(backend="nccl", device=99), rank=99, world_size=100, groups=())


def test_a_rank_that_stands_by_ends_when_the_store_is_gone(monkeypatch):
    class Gone:
        def check(self, keys):
            raise RuntimeError("Failed to recv, got 0 bytes")

    class Watch:
        place = ""

    ended = []
    monkeypatch.setattr(comm_torch.dist, "destroy_process_group", lambda: ended.append(True))
    communicator = object.__new__(TorchCommunicator)
    communicator._store, communicator._watch = Gone(), Watch()
    communicator.stand_by([0])
    assert ended == [True]
