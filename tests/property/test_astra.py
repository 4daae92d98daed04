"""ASTRA-sim's rules on random jobs: computing ahead and folding change no tick, and no rank's number matters."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chakra_et.errors import SimulationError
from chakra_et.ir import TraceSet
from tests.unit.sim.astra.jobs import COLLECTIVES, collective, compute, each, machine, simulate, times

KINDS = sorted(COLLECTIVES)
ALGORITHMS = ["ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree"]
NEVER = "never ends"
FLAT = [(2,), (4,), (8,), (2, 2), (2, 4), (2, 2, 2)]


@st.composite
def machines(draw, shapes=FLAT, algorithms=ALGORITHMS):
    shape = draw(st.sampled_from(shapes))
    names = tuple(draw(st.sampled_from(["Ring", "Switch", "FullyConnected"])) for _ in shape)
    used = [draw(st.sampled_from(algorithms)) for _ in shape]
    safe = tuple("ring" if name == "halvingDoubling" else name for name in used)
    return machine(
        shape,
        names,
        tuple(used),
        all_to_all=safe,
        bandwidth=tuple(draw(st.sampled_from([1.0, 7.5, 50.0])) for _ in shape),
        latency_ns=tuple(draw(st.sampled_from([1.5, 100.0, 936.25])) for _ in shape),
        splits=draw(st.integers(1, 4)),
        active_chunks=draw(st.integers(1, 3)),
        endpoint_delay=draw(st.sampled_from([1, 10, 300])),
        collective_optimization=draw(st.sampled_from(["baseline", "localBWAware"])),
    )


@st.composite
def programs(draw):
    """Nodes as (kind, value, dependencies): of all ranks alike, but for the time of compute.

    A collective waits for the one before it, so that all ranks issue them in one order.
    """
    found, last = [], []
    for at in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["compute", *KINDS]))
        after = draw(st.lists(st.integers(0, at - 1), max_size=2, unique=True)) if at else []
        if kind != "compute":
            after, last = sorted({*after, *last}), [at]
        found.append((kind, draw(st.sampled_from([64, 1000, 1_003, 65_536])), after))
    return found


def outcome(traces, config, **options):
    """Start and end of every node, or that the job never ends: chunks can wait for one another for ever."""
    try:
        return times(simulate(traces, config, **options))
    except SimulationError:
        return NEVER


def job(ranks, program, skew):
    def build(builder, rank):
        for kind, value, after in program:
            if kind == "compute":
                compute(builder, 1 + value % 13 + skew[rank % len(skew)], after)
            else:
                collective(builder, kind, value, after)

    return each(ranks, build)


@settings(deadline=None, max_examples=150)
@given(machines(), programs(), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 3))
def test_computing_ahead_changes_no_tick(config, program, skew, queues):
    traces = job(config.npus, program, skew)
    ahead = outcome(traces, config, queues_per_dim=queues, fold="off")
    assert ahead == outcome(traces, config, queues_per_dim=queues, fold="off", solve=False)


@settings(deadline=None, max_examples=100)
@given(machines(), programs(), st.booleans())
def test_folding_changes_no_tick(config, program, aware):
    backend = "aware" if aware and len(config.npus_count) == 1 and config.npus > 2 else "unaware"
    traces = job(config.npus, program, [0])
    whole = outcome(traces, config, backend=backend, fold="off")
    assert whole == outcome(traces, config, backend=backend)
    if whole != NEVER:
        results = [simulate(traces, config, backend=backend, fold=fold) for fold in ("auto", "off")]
        assert len({(result.ranks, result.groups) for result in results}) == 1


@settings(deadline=None, max_examples=60)
@given(machines(shapes=[(4,), (8,)], algorithms=["ring", "direct"]), programs(), st.integers(1, 7))
def test_turning_the_ranks_turns_the_times(config, program, shift):
    ranks = config.npus
    traces = job(ranks, program, list(range(ranks)))
    turned = TraceSet(
        tuple(
            sorted(
                (replace(t, metadata=replace(t.metadata, rank=(t.rank + shift) % ranks)) for t in traces),
                key=lambda t: t.rank,
            )
        )
    )
    before, after = times(simulate(traces, config)), times(simulate(turned, config))
    assert after == {(rank + shift) % ranks: found for rank, found in before.items()}


@settings(deadline=None, max_examples=60)
@given(machines(), programs(), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.sampled_from([2, 3.5, 10]))
def test_collectives_in_a_row_are_never_slower_with_more_bandwidth(config, program, skew, factor):
    # In a row: with several nodes ready at once, a faster one can change who gets a slot (Graham's anomaly).
    row = [(kind, value, [at - 1] if at else []) for at, (kind, value, _) in enumerate(program)]
    traces = job(config.npus, row, skew)
    fast = replace(config, bandwidth=tuple(factor * value for value in config.bandwidth))
    slow_times, fast_times = outcome(traces, config), outcome(traces, fast)
    assume(NEVER not in (slow_times, fast_times))
    assert last_end(fast_times) <= last_end(slow_times)


def last_end(found):
    return max(end for nodes in found.values() for _, end in nodes)
