"""Options of captures before execution, and which ranks are captured."""

import pytest

from chakra_et.capture.fake.options import MOST_ROLES, FakeOptions, FakeRank, run_roles
from chakra_et.errors import InputError

JOB = FakeOptions("out", world_size=1000)


def chain(length):
    """Return what captures one rank of a pipeline over all ranks."""
    return lambda rank: FakeRank(rank, 1, 1, tuple(one for one in (rank - 1, rank + 1) if 0 <= one < length))


def test_options_survive_their_text():
    options = FakeOptions("a b/ü", world_size=64, device="cpu", wait=0, active=3, routing="zipf", ranks_per_server=4)
    assert FakeOptions.from_text(options.to_text()) == options


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"world_size": 0}, "world_size: expected a whole number, 1 or more, got 0"),
        ({"wait": -1}, "wait: expected a whole number, 0 or more, got -1"),
        ({"active": True}, "active: expected a whole number, 1 or more, got True"),
        ({"device": "tpu"}, "device: expected cuda or cpu, got 'tpu'"),
        ({"routing": "hash"}, "routing: expected balanced or zipf, got 'hash'"),
    ],
)
def test_strange_options_are_refused(values, text):
    with pytest.raises(InputError, match=text):
        FakeOptions("out", **values)


def test_ranks_of_a_server():
    assert FakeOptions("out", world_size=64).local_size() == 8
    assert FakeOptions("out", world_size=2).local_size() == 2


def test_roles_are_found_by_who_exchanges_messages():
    assert [one.rank for one in run_roles("roles", JOB, chain(5))] == [0, 1, 2, 3, 4]
    assert [one.rank for one in run_roles("roles", JOB, chain(1))] == [0]


def test_stages_are_captured_in_order():
    seen = []

    def run(rank):
        seen.append(rank)
        return chain(6)(rank)

    run_roles("roles", JOB, run)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_very_many_roles_are_refused():
    with pytest.raises(InputError, match=f"expected at most {MOST_ROLES} roles"):
        run_roles("roles", JOB, lambda rank: FakeRank(rank, 1, 1, tuple(range(MOST_ROLES + 5))))


def test_named_ranks():
    assert [one.rank for one in run_roles((7, 3, 7), JOB, chain(9))] == [3, 7]
    for ranks, got in (((1000,), "1000"), ((), "none")):
        with pytest.raises(InputError, match=f"expected some of 0 to 999, got {got}"):
            run_roles(ranks, JOB, chain(9))
    with pytest.raises(InputError, match="expected global ranks or 'roles', got 'all'"):
        run_roles("all", JOB, chain(9))
