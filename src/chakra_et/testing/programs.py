"""Programs for the model machine: training, inference and stream patterns as PyTorch runs them.

Every program takes ``ranks``, ``layers``, ``iterations``, ``seed`` and ``bound``: "device" (kernels are long, the host
runs ahead) or "host" (kernels are short, the device waits for launches). Ranks do the same; only drawn times differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from chakra_et.errors import InputError
from chakra_et.testing.builder import COMPUTE_STREAM, ProgramBuilder, ThreadBuilder
from chakra_et.testing.instructions import Program, Tensor

__all__ = [
    "PROGRAMS",
    "fsdp_step",
    "inference_graph_step",
    "multi_stream",
    "pipeline_step",
    "training_step",
]

Bound = Literal["device", "host"]
_KERNEL_NS = {"device": 90_000, "host": 4_000}
_HOST_SCALE = {"device": 1.0, "host": 3.0}
_NELEMS = 262_144
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>"
    "(int, at::native::GeluCUDAKernelImpl, std::array<char*, 2ul>)"
)
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>()"
NCCL_STREAM = 20


class _Rank:
    """One rank's main and autograd threads, and the layers that they run."""

    def __init__(self, builder: ProgramBuilder, rank: int, bound: str) -> None:
        self.rank, self.size = rank, builder.ranks
        self.owner = builder.rank(rank)
        self.main = self.owner.thread()
        self.usual_ns = _KERNEL_NS[bound]
        self.saved: list[tuple[str, int, int]] = []  # forward operators that have a backward: name, sequence, flow
        self.last: Tensor = self.owner.tensor(_NELEMS)

    def kernel(self, thread: ThreadBuilder, name: str, factor: float = 1.0, stream: int = COMPUTE_STREAM) -> None:
        thread.launch(name, duration_ns=thread.vary(int(self.usual_ns * factor)), stream=stream)

    def step_input(self) -> None:
        """Bring a batch to the device."""
        with self.main.op("aten::to"), self.main.op("aten::_to_copy"), self.main.op("aten::copy_"):
            self.main.memcpy_async("HtoD", 65_536)

    def forward(self, index: int) -> None:
        """One layer: a matrix product and a nonlinearity."""
        main = self.main
        with main.frame(f"nn.Module: Block_{index}"):
            for name, inner, kernel, factor in (
                ("aten::linear", "aten::addmm", GEMM, 1.0),
                ("aten::gelu", "", GELU, 0.4),
            ):
                saved = ("Addmm" if inner else "Gelu", self.owner.count("sequence"), self.owner.count("flow"))
                output = self.owner.tensor(_NELEMS)
                operands = {"inputs": [self.last], "outputs": [output]}
                self.saved.append(saved)
                marks = {"sequence": saved[1], "flow": saved[2]}
                if inner:
                    with main.op(name, **operands), main.op(inner, **operands, **marks):  # type: ignore[arg-type]
                        self.kernel(main, kernel, factor)
                else:
                    with main.op(name, **operands, **marks):  # type: ignore[arg-type]
                        self.kernel(main, kernel, factor)
                self.last = output
            main.python()

    def backward_layer(self, worker: ThreadBuilder) -> None:
        """The backward of one layer: both operators that `forward` has saved, latest first."""
        for _ in range(2):
            kind, sequence, flow = self.saved.pop()
            name = f"{kind}Backward0"
            output = self.owner.tensor(_NELEMS)
            marks = {"sequence": sequence, "forward": self.main}
            with (
                worker.op(f"autograd::engine::evaluate_function: {name}", **marks),  # type: ignore[arg-type]
                worker.op(name, flow=flow, inputs=[self.last], outputs=[output], **marks),  # type: ignore[arg-type]
            ):
                if kind == "Gelu":
                    with worker.op("aten::gelu_backward"):
                        self.kernel(worker, GELU, 0.5)
                else:
                    with worker.op("aten::mm"):
                        self.kernel(worker, GEMM, 1.0)
                    with worker.op("aten::mm"):
                        self.kernel(worker, GEMM, 0.9)
            self.last = output

    def optimizer(self) -> None:
        """Fused parameter updates."""
        with self.main.annotation("Optimizer.step#AdamW.step"), self.main.op("aten::_fused_adamw_"):
            for _ in range(4):
                self.main.busy(2_000)
                self.kernel(self.main, ADAM, 0.3)

    @contextmanager
    def backward(self) -> Iterator[ThreadBuilder]:
        """What is written inside runs on the autograd thread while the main thread sleeps."""
        with (
            self.main.frame("torch/autograd/graph.py(841): _engine_run_backward"),
            self.main.call_backward(self.owner.thread("autograd")) as worker,
        ):
            yield worker


def _program(
    name: str,
    body: Callable[[_Rank], None],
    *,
    ranks: int,
    iterations: int,
    seed: int,
    bound: Bound,
) -> Program:
    """Build a program whose main threads run ``body`` once per iteration, inside a ProfilerStep."""
    if bound not in _KERNEL_NS:
        raise InputError(f"program '{name}': expected bound 'device' or 'host', got '{bound}'; choose one")
    if iterations < 1:
        raise InputError(f"program '{name}': expected iterations of 1 or more, got {iterations}; run it at least once")
    builder = ProgramBuilder(name, ranks=ranks, seed=seed, host_scale=_HOST_SCALE[bound])
    for number in range(ranks):
        rank = _Rank(builder, number, bound)
        for iteration in range(iterations):
            with rank.main.annotation(f"ProfilerStep#{iteration}"):
                body(rank)
        with rank.main.op("aten::empty"):
            rank.main.busy()
        rank.main.device_synchronize()
    return builder.build()


def training_step(
    *, ranks: int = 1, layers: int = 4, iterations: int = 2, seed: int = 0, bound: Bound = "device"
) -> Program:
    """Data-parallel training: gradients are all-reduced in buckets while the backward goes on (DDP's habit).

    Example:
        >>> training_step(ranks=2).ranks
        2
    """

    def body(rank: _Rank) -> None:
        main, works = rank.main, []
        rank.step_input()
        for index in range(layers):
            rank.forward(index)
        with main.op("aten::cross_entropy_loss"):
            rank.kernel(main, REDUCE, 0.2)
        with rank.backward() as worker:
            for index in range(layers):
                rank.backward_layer(worker)
                if index % 2 == 1 or index == layers - 1:
                    with worker.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
                        works.append(worker.collective("allreduce", 4 * _NELEMS, stream=NCCL_STREAM, tensor=rank.last))
            for work in works:
                worker.wait(work)
        rank.optimizer()
        main.item()

    return _program("training_step", body, ranks=ranks, iterations=iterations, seed=seed, bound=bound)


def fsdp_step(
    *, ranks: int = 1, layers: int = 4, iterations: int = 2, seed: int = 0, bound: Bound = "device"
) -> Program:
    """Sharded training: all-gathers are prefetched on one stream, gradients reduce-scattered on another (FSDP's habit).

    The copies around the communications run on streams of their own, joined by record on one and wait on the other.
    """
    gather_copies, gathers, reduce_copies, reduces = 20, 24, 28, 32

    def unshard(rank: _Rank, thread: ThreadBuilder) -> str:
        with thread.op("fsdp::all_gather_copy_in"):
            thread.wait_stream(gather_copies, COMPUTE_STREAM)
            rank.kernel(thread, COPY, 0.1, gather_copies)
        return thread.collective("_allgather_base", _NELEMS, stream=gathers, current=gather_copies)

    def use(rank: _Rank, thread: ThreadBuilder, work: str) -> None:
        thread.wait(work)
        with thread.op("fsdp::split_with_sizes_copy"):
            rank.kernel(thread, COPY, 0.1)

    def reshard(rank: _Rank, thread: ThreadBuilder) -> str:
        with thread.op("fsdp::chunk_cat"):
            thread.wait_stream(reduce_copies, COMPUTE_STREAM)
            rank.kernel(thread, COPY, 0.15, reduce_copies)
        nelems = _NELEMS * rank.size
        return thread.collective("_reduce_scatter_base", nelems, stream=reduces, current=reduce_copies)

    def body(rank: _Rank) -> None:
        main = rank.main
        rank.step_input()
        works = [unshard(rank, main)]
        for index in range(layers):
            if index + 1 < layers:
                works.append(unshard(rank, main))
            use(rank, main, works[index])
            rank.forward(index)
        with rank.backward() as worker:
            reductions = []
            for _ in range(layers):
                rank.backward_layer(worker)
                reductions.append(reshard(rank, worker))
            for work in reductions:
                worker.wait(work, stream=reduce_copies)
            worker.wait_stream(COMPUTE_STREAM, reduce_copies)
        rank.optimizer()
        main.item()

    return _program("fsdp_step", body, ranks=ranks, iterations=iterations, seed=seed, bound=bound)


def pipeline_step(
    *,
    ranks: int = 1,
    layers: int = 2,
    iterations: int = 1,
    seed: int = 0,
    bound: Bound = "device",
    microbatches: int = 4,
) -> Program:
    """Pipeline stages that pass activations up and gradients down, all forwards first (GPipe's schedule).

    Each pair of neighbors has a stream of its own, as c10d gives each pair a communicator.
    """

    def link(rank: int, peer: int) -> int:
        return 40 + 4 * min(rank, peer)

    def body(rank: _Rank) -> None:
        main, above, below = rank.main, rank.rank + 1, rank.rank - 1
        for _ in range(microbatches):
            if below >= 0:
                main.wait(main.recv(_NELEMS, peer=below, stream=link(rank.rank, below)))
            else:
                rank.step_input()
            for index in range(layers):
                rank.forward(index)
            if above < rank.size:
                main.send(_NELEMS, peer=above, stream=link(rank.rank, above))
        for _ in range(microbatches):
            if above < rank.size:
                main.wait(main.recv(_NELEMS, peer=above, stream=link(rank.rank, above)))
            with rank.backward() as worker:
                for _ in range(layers):
                    rank.backward_layer(worker)
            if below >= 0:
                main.send(_NELEMS, peer=below, stream=link(rank.rank, below))
        rank.optimizer()
        main.item()

    return _program("pipeline_step", body, ranks=ranks, iterations=iterations, seed=seed, bound=bound)


def inference_graph_step(
    *, ranks: int = 1, layers: int = 4, iterations: int = 4, seed: int = 0, bound: Bound = "device"
) -> Program:
    """Token by token: copy in, launch a graph, gather logits over ranks, copy out, wait, choose the next token.

    The graph has a branch on a stream of its own. One iteration is one token.
    """
    side = 13

    def body(rank: _Rank) -> None:
        main = rank.main
        with main.op("aten::copy_"):
            main.memcpy_async("HtoD", 512)
        kernels = []
        for index in range(layers):
            kernels += [
                (GEMM, main.vary(rank.usual_ns), COMPUTE_STREAM),
                (GELU, main.vary(rank.usual_ns // 3), COMPUTE_STREAM),
                (f"triton_red_fused_{index}", main.vary(rank.usual_ns // 2), side),
            ]
        main.graph_launch(kernels, call_ns=main.vary(20_000))
        if rank.size > 1:
            main.wait(main.collective("_allgather_base", _NELEMS, stream=NCCL_STREAM))
        with main.op("aten::argmax"):
            rank.kernel(main, REDUCE, 0.2)
        with main.op("aten::copy_"):
            main.memcpy_async("DtoH", 256)
        main.event_record("token")
        main.event_synchronize("token")
        with main.frame("sampler.py(88): detokenize"):
            main.python(main.vary(30_000))

    return _program("inference_graph_step", body, ranks=ranks, iterations=iterations, seed=seed, bound=bound)


def multi_stream(
    *, ranks: int = 1, layers: int = 4, iterations: int = 2, seed: int = 0, bound: Bound = "device"
) -> Program:
    """Two compute streams that fork and join through events, with a stream synchronization per iteration."""
    side = 13

    def body(rank: _Rank) -> None:
        main = rank.main
        with main.op("aten::zero_"):
            main.memset(1_048_576)
        for index in range(layers):
            main.event_record(f"fork {index}")
            main.stream_wait_event(side, f"fork {index}")
            with main.op("aten::mm"):
                rank.kernel(main, GEMM)
            with main.op("aten::mm"):
                rank.kernel(main, GEMM, 0.6 + 0.3 * (index % 3), side)
            main.event_record(f"join {index}", side)
            main.stream_wait_event(COMPUTE_STREAM, f"join {index}")
            with main.op("aten::add"):
                rank.kernel(main, GELU, 0.3)
            main.python()
        if rank.size > 1:
            main.wait(main.collective("allreduce", _NELEMS, stream=NCCL_STREAM))
        main.stream_synchronize()

    return _program("multi_stream", body, ranks=ranks, iterations=iterations, seed=seed, bound=bound)


PROGRAMS: dict[str, Callable[..., Program]] = {
    "training_step": training_step,
    "fsdp_step": fsdp_step,
    "pipeline_step": pipeline_step,
    "inference_graph_step": inference_graph_step,
    "multi_stream": multi_stream,
}
