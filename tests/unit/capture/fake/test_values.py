"""Values that programs ask of tensors that have none."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from chakra_et.capture.fake import record_fake  # noqa: E402
from chakra_et.capture.fake.values import expert_counts  # noqa: E402
from chakra_et.errors import InputError  # noqa: E402


@pytest.fixture
def ask(tmp_path):
    """Return what a program finds, and the notes of its capture."""

    def run(function, **options):
        answers = []
        [found] = record_fake(lambda: answers.append(function()), tmp_path / "out", wait=0, ranks=(0,), **options)
        notes = {note: count for note, count in found.warnings.items() if "optimizer steps" not in note}
        return answers[0], notes

    return run


@pytest.mark.parametrize("routing", ["balanced", "zipf"])
@pytest.mark.parametrize(("tokens", "experts"), [(0, 4), (7, 4), (1000, 8), (3, 1), (2, 5)])
def test_no_token_is_lost(tokens, experts, routing):
    counts = expert_counts(tokens, experts, routing)
    assert sum(counts) == tokens
    assert len(counts) == experts
    assert min(counts) >= 0
    assert counts == sorted(counts, reverse=True)
    if routing == "balanced":
        assert max(counts) - min(counts) <= 1


def test_made_up_values_are_plausible_and_counted(ask):
    def program():
        x = torch.randn(3)
        return x.sum().item(), float(x[0]), int(x.argmax()), bool(x.any()), x.tolist(), f"{x.sum():.2f}", len(x.numpy())

    answers, notes = ask(program)
    assert answers == (1.0, 1.0, 0, True, [1.0, 1.0, 1.0], "1.00", 3)
    assert any("made up" in note for note in notes)


def test_what_is_known_is_answered_truly(ask):
    def program():
        x = torch.randn(4)
        if torch.isnan(x).any() or torch.isinf(x).any():
            raise AssertionError("overflow")
        return torch.tensor(7).item(), torch.equal(x, x), torch.equal(x, torch.randn(5))

    assert ask(program) == ((7, True, False), {})


def test_what_does_not_fit_is_not_known(ask):
    """No values are checked under fake tensors: an index that is out of range ends nothing."""
    answer, notes = ask(lambda: torch.arange(3)[torch.tensor([5])].tolist())
    assert answer == [0]
    assert any("made up" in note for note in notes)


def test_counts_are_followed(ask):
    def program():
        counts = torch.bincount(torch.randint(0, 6, (20,)), minlength=6)
        return counts.tolist(), counts.view(2, 3).sum(1).tolist(), counts.cumsum(0)[-1].item(), counts.max().item()

    answers, notes = ask(program)
    assert answers == ([4, 4, 3, 3, 3, 3], [11, 9], 20, 4)
    assert notes == {"counts of values (bincount, histc): taken to be balanced": 1}
    assert ask(program, routing="zipf")[0][0][0] > 4


def test_a_value_that_is_written_over_is_known_no_more(ask):
    def program():
        counts = torch.histc(torch.rand(8), bins=4)
        before = counts.tolist()
        counts.mul_(torch.rand(4))
        return before, counts.tolist()

    answers, _ = ask(program)
    assert answers == ([2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0])


def test_counts_are_exchanged_as_all_ranks_have_the_same(ask):
    def program():
        dist.init_process_group("nccl")
        counts = torch.bincount(torch.randint(0, 4, (10,)), minlength=4)
        others, gathered = torch.empty_like(counts), torch.empty(8, dtype=torch.int64)
        dist.all_to_all_single(others, counts)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(gathered, counts)
        total = counts.clone()
        dist.all_reduce(total)
        return others.tolist(), gathered.tolist(), total.tolist()

    answers, _ = ask(program, world_size=2)
    assert answers == ([3, 3, 3, 3], [3, 3, 2, 2] * 2, [6, 6, 4, 4])


def test_shapes_from_values(ask):
    def program():
        x = torch.randn(4, 5)
        counts = torch.bincount(torch.randint(0, 4, (9,)), minlength=4)
        return (
            tuple(x[x > 0].shape), tuple((x > 0).nonzero().shape), tuple(x.masked_select(x > 0).shape),
            tuple(torch.repeat_interleave(torch.arange(4), counts).shape),
        )  # fmt: skip

    answers, notes = ask(program)
    assert answers == ((20,), (20, 2), (20,), (9,))
    assert any("non-zero" in note for note in notes)


def test_what_cant_be_told_is_refused_by_name(ask):
    with pytest.raises(
        InputError, match=r"rank 0: expected a program whose shapes don't depend on values, got aten._uniq"
    ):
        ask(lambda: torch.randint(0, 4, (9,)).unique())
