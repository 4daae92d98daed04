"""Fitting the native model to measured transfers."""

from dataclasses import replace

import numpy as np
import pytest

from chakra_et.errors import SimulationError
from chakra_et.sim.network.bounds import bottlenecks
from chakra_et.sim.network.calibrate import calibrate
from chakra_et.sim.network.fit import fit_factors
from chakra_et.sim.network.native import plan_flows
from tests.unit.sim.network.machines import collective, flat, send, servers, table

SIZES = np.geomspace(1e3, 1e9, 60).astype(int).tolist()


def times(flows):
    return flows.latency_ns + bottlenecks(flows)[0]


def measured(machine, world, rows, noise=0.0, outliers=0.0, seed=0):
    """Return the rows with the times of a machine, times a normal error, and some ten times as long."""
    random = np.random.default_rng(seed)
    found = times(plan_flows(table(*rows), machine, world)) * (1 + noise * random.standard_normal(len(rows)))
    found = np.where(random.random(len(rows)) < outliers, 10 * found, found)
    return table(*({**row, "measured_ns": float(time)} for row, time in zip(rows, found, strict=True)))


def slower(machine, latency, bandwidth):
    """Return a machine with each dimension's latency and bandwidth multiplied."""
    changed = [
        replace(d, latency_ns=d.latency_ns * latency, bandwidth_bytes_per_s=d.bandwidth_bytes_per_s * bandwidth)
        for d in machine.dimensions
    ]
    return replace(machine, dimensions=tuple(changed))


def job():
    rows = [collective(kind, size, range(8)) for kind in ("all_reduce", "all_gather") for size in SIZES]
    rows += [collective("reduce_scatter", size, range(0, 32, 8)) for size in SIZES]
    return rows + [send(0, 8, size) for size in SIZES]


@pytest.mark.parametrize("seed", range(5))
def test_known_parameters_come_back_despite_noise(seed):
    times_seen = measured(slower(servers(), 3.0, 0.8), 32, job(), noise=0.05, outliers=0.05, seed=seed)
    fit = calibrate(times_seen, servers(), 32, algorithm="ring")
    assert [(one.comm_type, one.span) for one in fit.classes] == [
        ("reduce_scatter", "scale_out"),
        ("send", "scale_out"),
        ("all_gather", "scale_up"),
        ("all_reduce", "scale_up"),
    ]
    for one in fit.classes[:3]:
        assert one.method == "latency and transfer"
        assert one.latency_factor == pytest.approx(3.0, rel=0.05)
        assert one.transfer_factor == pytest.approx(1 / 0.8, rel=0.05)
        assert (one.samples, one.smallest_bytes, one.largest_bytes) == (60, SIZES[0], SIZES[-1])
        assert one.residual_median < 0.06 < one.residual_p90 < 1.0
    assert fit.classes[2].bytes_per_s == pytest.approx(0.8 * 400e9, rel=0.05)
    assert fit.classes[0].latency_ns == pytest.approx(3 * 3 * 2700, rel=0.05)
    assert fit.notes == ()


def test_a_fit_of_exact_times_plans_the_same_times():
    rows = [collective("all_gather", size, range(8)) for size in SIZES]
    true = slower(servers(), 0.5, 0.7)
    fit = calibrate(measured(true, 32, rows), servers(), 32)
    np.testing.assert_allclose(
        times(fit.plan_flows(table(*rows))), times(plan_flows(table(*rows), true, 32)), rtol=1e-6
    )


def test_a_what_if_keeps_the_efficiency():
    rows = [collective("all_gather", size, range(8)) for size in SIZES]
    fit = calibrate(measured(slower(servers(), 1.0, 0.7), 32, rows), servers(), 32)
    twice = slower(servers(), 1.0, 2.0)
    large = table(collective("all_gather", 10**9, range(8)))
    before, after = (bottlenecks(fit.plan_flows(large, machine))[0][0] for machine in (servers(), twice))
    assert before == pytest.approx(7e9 / (400 * 0.7))
    assert after == pytest.approx(before / 2)
    flows = fit.plan_flows(large, twice)
    assert set(flows.capacity.tolist()) == {800.0}


def test_sizes_that_are_too_equal_fit_less():
    fast = [collective("all_gather", 10**9, range(8)), collective("all_gather", 11 * 10**8, range(8))]
    slow = [collective("all_gather", 10, range(8))] * 5
    fit = calibrate(measured(slower(servers(), 3.0, 0.5), 32, fast), servers(), 32).classes[0]
    assert (fit.method, fit.latency_factor) == ("transfer", 1.0)
    assert fit.transfer_factor == pytest.approx(2.0, rel=0.01)
    fit = calibrate(measured(slower(servers(), 1.5, 1.0), 32, slow), servers(), 32)
    assert (fit.classes[0].method, fit.classes[0].latency_factor) == ("both alike", fit.classes[0].transfer_factor)
    assert fit.classes[0].latency_factor == pytest.approx(1.5, rel=0.01)
    assert fit.notes == (
        "all_gather over scale_up: too few sizes, or too equal ones, to tell latency from bandwidth: "
        "one factor for both",
    )


def test_barriers_have_a_latency_only():
    rows = [collective("barrier", 0, range(8))] * 3
    fit = calibrate(measured(slower(servers(), 2.0, 1.0), 32, rows), servers(), 32)
    one = fit.classes[0]
    assert (one.method, one.latency_factor, one.bytes_per_s) == ("latency", 2.0, 0.0)
    assert fit.plan_flows(table(rows[0])).latency_ns.tolist() == [2 * 2 * 3 * 600.0]


def test_factors_are_never_negative():
    size = np.array([1.0, 10.0, 100.0, 1000.0])
    fit = fit_factors(size, np.full(4, 5.0), size)
    assert (fit.latency_factor, fit.transfer_factor) == pytest.approx((0.0, 1.0))
    fit = fit_factors(np.array([1000.0, 100.0, 10.0, 1.0]), np.full(4, 1.0), size)
    assert min(fit.latency_factor, fit.transfer_factor) == 0.0


def test_times_that_do_not_depend_on_the_size_leave_links_empty():
    rows = [{**send(0, 1, size), "measured_ns": 1000.0} for size in (1, 10, 100, 1000)]
    fit = calibrate(table(*rows), flat(speed=1.0, latency=500.0), 2)
    assert fit.classes[0].transfer_factor < 0.2
    flat_fit = replace(fit, classes=(replace(fit.classes[0], transfer_factor=0.0),))
    flows = flat_fit.plan_flows(table(*rows))
    assert (len(flows.links), flows.indptr.tolist()) == (0, [0] * 5)


def test_without_a_system():
    rows = [{**collective("all_reduce", size, range(4)), "measured_ns": 6 * 2000 + 1.5 * size / 5} for size in SIZES]
    fit = calibrate(table(*rows), None, 4)
    one = fit.classes[0]
    assert (one.span, one.method) == ("network", "latency and transfer")
    assert (one.latency_factor, one.bytes_per_s) == pytest.approx((2000.0, 5e9))
    np.testing.assert_allclose(times(fit.plan_flows(table(*rows))), [row["measured_ns"] for row in rows], rtol=1e-6)
    assert fit.as_dict()["system"] is None
    assert fit.as_dict()["classes"][0]["comm_type"] == "all_reduce"


def test_what_was_not_measured_is_said():
    rows = [collective("all_gather", size, range(8)) for size in (10**3, 10**4, 10**5, 10**6)]
    fit = calibrate(measured(slower(servers(), 1.0, 0.5), 32, rows), servers(), 32)
    other = [collective("all_gather", 10**7, range(8))] * 2 + [collective("all_reduce", 10**6, range(32)), rows[0]]
    assert fit.validity(table(*rows)) == ()
    assert fit.validity(table(*other)) == (
        "1 communication of all_reduce over scale_up+scale_out: not measured; they take the median factors of the "
        "span, or of all",
        "2 communications of all_gather over scale_up: beyond the measured sizes, 1000 B to 976.6 KiB",
    )
    flows = fit.plan_flows(table(*other))
    native = plan_flows(table(*other), servers(), 32)
    assert flows.bytes[-1] == pytest.approx(native.bytes[-1] * 2)


def test_unknown_types_and_lone_ranks_are_left_alone():
    rows = [collective("all_gather", size, range(8), measured_ns=float(size)) for size in (10, 100, 1000, 10**4)]
    rows += [{**rows[0], "comm_type": None}, collective("all_gather", 5, [0], measured_ns=7.0)]
    fit = calibrate(table(*rows), servers(), 32)
    assert [one.samples for one in fit.classes] == [4]
    assert fit.plan_flows(table(*rows)).algorithm[-2:] == ("measured", "none")
    assert fit.plan_flows(table(*rows)).latency_ns[-2:].tolist() == [10.0, 0.0]


def test_nothing_measured_is_refused():
    with pytest.raises(SimulationError, match="expected communications with measured times"):
        calibrate(table(collective("all_gather", 5, range(8))), servers(), 8)
