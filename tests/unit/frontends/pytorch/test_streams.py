"""Streams wait for each other: read from records, or inferred from calls and times."""

import pytest

from chakra_et.testing import ProfileConfig
from tests.unit.frontends.pytorch.converted import Causes, one_thread

BOTH = pytest.mark.parametrize("sync", [True, False], ids=["records", "inferred"])


def fork_and_join(main):
    with main.op("aten::mm"):
        main.launch("before", duration_ns=80_000)
    main.event_record("fork")
    main.stream_wait_event(13, "fork")
    with main.op("aten::mm"):
        main.launch("side", duration_ns=120_000, stream=13)
    with main.op("aten::mm"):
        main.launch("beside", duration_ns=30_000)
    main.event_record("join", 13)
    main.stream_wait_event(7, "join")
    with main.op("aten::mm"):
        main.launch("after", duration_ns=10_000)
    main.device_synchronize()


@BOTH
def test_events_order_streams(sync):
    trace, _ = one_thread(fork_and_join, show=ProfileConfig(cuda_sync=sync))
    causes = Causes(trace)
    assert "before" in causes.after("side")
    assert {"side", "beside"} <= causes.after("after")
    assert "side" not in causes.after("beside")
    marked = trace.column("inferred").fill_null(False).sum() > 0
    assert marked is not sync


def test_streams_without_events_are_free():
    def body(main):
        for stream in (7, 13, 14):
            with main.op("aten::mm"):
                main.launch(f"on {stream}", duration_ns=90_000, stream=stream)
        main.device_synchronize()

    causes = Causes(one_thread(body)[0])
    kernels = {"on 7", "on 13", "on 14"}
    assert all(not causes.after(name) & kernels for name in kernels)


@BOTH
def test_communications_wait_for_compute_and_compute_for_them(sync):
    def body(main):
        with main.op("aten::mm"):
            main.launch("gradient", duration_ns=90_000)
        work = main.collective("allreduce", 4096, stream=20)
        with main.op("aten::mm"):
            main.launch("overlapping", duration_ns=20_000)
        main.wait(work)
        with main.op("aten::mm"):
            main.launch("using", duration_ns=10_000)
        main.device_synchronize()

    trace, _ = one_thread(body, show=ProfileConfig(cuda_sync=sync))
    causes = Causes(trace)
    (nccl,) = (name for name in trace.nodes["name"].unique() if name.startswith("ncclDevKernel"))
    assert "gradient" in causes.after(nccl)
    assert nccl not in causes.after("overlapping")
    assert nccl in causes.after("using")


@BOTH
def test_waits_meet_works_in_order(sync):
    """Two communications in flight: each wait is for the older one that nobody has waited for."""

    def body(main):
        works = [
            main.collective(name, 65_536, stream=stream) for name, stream in (("allreduce", 20), ("broadcast", 21))
        ]
        for work, name in zip(works, ("first", "second"), strict=True):
            main.wait(work)
            with main.op("aten::mm"):
                main.launch(name, duration_ns=10_000)
        main.device_synchronize()

    trace, _ = one_thread(body, show=ProfileConfig(cuda_sync=sync))
    causes = Causes(trace)
    assert any("AllReduce" in name for name in causes.after("first"))
    assert not any("Broadcast" in name for name in causes.after("first"))
    assert any("Broadcast" in name for name in causes.after("second"))


def test_graph_launches_are_one_unit_on_their_stream():
    def body(main):
        with main.op("aten::mm"):
            main.launch("before", duration_ns=150_000)
        main.graph_launch([("a", 20_000, 7), ("b", 30_000, 13), ("c", 5_000, 7)])
        with main.op("aten::mm"):
            main.launch("after", duration_ns=10_000)
        main.device_synchronize()

    trace, facts = one_thread(body)
    causes = Causes(trace)
    assert "before" in causes.after("a")
    assert "before" in causes.after("b")
    assert causes.after("c") >= {"a"}
    assert {"b", "c"} <= causes.after("after")
    assert facts.linked == facts.device_activities == 5


def test_neighbors_on_a_stream_are_chained():
    def body(main):
        for number in range(3):
            with main.op("aten::mm"):
                main.launch(f"k{number}", duration_ns=50_000)
        main.device_synchronize()

    causes = Causes(one_thread(body)[0])
    assert causes.after("k1") >= {"k0", "cudaLaunchKernel"}
    assert "k0" not in causes.after("k2")
