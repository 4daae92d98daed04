"""Records: tensors by identity, storages shared by views, windows."""

import copy

import pytest

torch = pytest.importorskip("torch")

from chakra_et.capture.fake.log import OBJECT, Log, Op, Sync, Wait  # noqa: E402
from chakra_et.capture.fake.streams import Streams  # noqa: E402

MM = torch.ops.aten.mm.default


@pytest.fixture
def log():
    log = Log()
    yield log
    log.close()


def operator(log, **changes):
    return Op(MM, (), {}, [], log.stream, False)._replace(**changes)


def test_a_tensor_has_a_number_and_views_share_a_storage(log):
    x = torch.zeros(4, 6)
    whole, again, view = log.ref(x), log.ref(x), log.ref(x[1:, 2:])
    assert whole == again
    assert view.tensor != whole.tensor
    assert view.storage == whole.storage
    assert (view.offset, view.shape, view.strides) == (8, (3, 4), (6, 1))
    assert log.ref(torch.zeros(4, 6)).storage != whole.storage


def test_copies_are_other_tensors(log):
    x = torch.zeros(2)
    assert log.ref(copy.deepcopy(x)).tensor != log.ref(x).tensor


def test_addresses_that_are_used_again_are_other_storages(log):
    numbers = [log.ref(torch.zeros(1000)).storage for _ in range(50)]
    assert len(set(numbers)) == 50


def test_another_log_counts_anew(log):
    x = torch.zeros(2)
    log.ref(torch.zeros(2)), log.ref(x)
    other = Log()
    assert (log.ref(x).tensor, other.ref(x).tensor) == (2, 1)
    other.close()


def test_arguments_are_kept_as_plain_values(log):
    x = torch.zeros(2)
    ref = log.ref(x)
    assert log.freeze([x, (1, None), "a", torch.float16]) == [ref, [1, None], "a", torch.float16]
    assert log.outputs(None) == []
    assert log.outputs((x, x)) == [ref, ref]
    assert log.outputs([x, x]) == [[ref, ref]]  # a list is one result
    assert log.freeze(OBJECT) is OBJECT


def test_a_window_forgets_what_came_before(log):
    log.add(operator(log))
    log.add(operator(log))
    log.clear()
    assert log.records == []
    assert (log.first, len(log.records)) == (2, 0)
    log.add(operator(log))
    assert log.last_of_stream == {0: 2}
    log.is_open = False
    log.add(operator(log))
    assert len(log.records) == 1


def test_only_asynchronous_communications_are_waited_for(log):
    first, second = log.next_communication(), log.next_communication()
    x = torch.zeros(2)
    log.issued(first, [log.ref(x)], is_async=True)
    assert log.filling(x[1:]) == first
    log.issued(second, [log.ref(x)], is_async=False)
    assert log.filling(x) == second
    for number in (first, second, None):
        log.wait_for(number)
    assert log.records == [Wait(first, 0)]


def test_a_stream_waits_for_what_another_was_given(log):
    streams = Streams(log)
    side = streams.Stream()
    assert (streams.default.number, side.number) == (0, 1)
    log.add(operator(log))
    side.wait_stream(streams.current())
    assert log.records[-1] == Sync(0, 1)
    with streams.use(side):
        log.add(operator(log, stream=log.stream))
        event = streams.current().record_event()
    assert log.records[-1].stream == 1
    assert streams.current() is streams.default
    streams.current().wait_event(event)
    assert log.records[-1] == Sync(2, 0)


def test_waits_that_say_nothing_are_left_out(log):
    streams = Streams(log)
    side = streams.Stream()
    log.add(operator(log))
    streams.default.wait_stream(streams.default)  # its own
    streams.default.wait_stream(side)  # has been given nothing
    event = streams.Event().record()
    log.clear()
    side.wait_event(event)  # before the window
    side.wait_event(None)
    assert log.records == []


def test_streams_are_contexts(log):
    streams = Streams(log)
    side = streams.Stream(device=0, priority=-1)
    with side, side:
        assert log.stream == 1
    assert log.stream == 0
    assert isinstance(side, streams.Stream)
    assert side.query()
    assert not side.is_capturing()
