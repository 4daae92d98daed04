"""One window: both observers over the same steps, and the files that come of it."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.profiler

from chakra_et.capture.files import CaptureFiles, compress, is_complete, write_manifest
from chakra_et.capture.groups import rank_and_size
from chakra_et.capture.manifest import describe_job
from chakra_et.capture.observer import Observer
from chakra_et.capture.options import CaptureOptions

__all__ = ["Session", "log", "log_failure"]


class Session:
    """Records one window of this process.

    Args:
        options: What to capture.
        first_step: Number of the step that begins now.
    """

    def __init__(self, options: CaptureOptions, first_step: int) -> None:
        self._options = options
        self._first = first_step
        self._steps = 0
        self._marks: list[int] = []
        self._warnings: list[str] = []
        self._exported = False
        self._failure: Exception | None = None
        self._running = False
        self._rank, _ = rank_and_size()
        Path(options.out).mkdir(parents=True, exist_ok=True)
        self._partial = CaptureFiles(Path(options.out), self._rank)
        self.observer = Observer(self._partial.partial_host, index_ranges=options.index_ranges)
        with _quietly():
            self._profiler = self._make_profiler()

    @property
    def rank(self) -> int:
        """Global rank."""
        return self._rank

    def start(self) -> None:
        """Begin the window, with its warm-up."""
        self._note_compiled()
        self._running = True
        with _quietly():
            self._profiler.start()
        self._mark()

    def step(self) -> bool:
        """End a step; return whether the window is over."""
        self._steps += 1
        with _quietly():
            self._profiler.step()
        self._mark()
        if self._failure is not None:
            raise self._failure
        return self._steps >= self._options.warmup + self._options.active

    def stop(self, reason: str, before_ns: float | None, *, at_once: bool) -> threading.Thread | None:
        """End the window, and write the files.

        Args:
            reason: How the window ended, for the manifest: ``window``, ``stop``, ``exception``, ``signal`` or ``exit``.
            before_ns: Mean length of the steps before the window, ns; None if unknown.
            at_once: Write before returning, not in a thread.

        Returns:
            The thread that writes, if one does.
        """
        if not self._exported:
            self._mark()
        self._stop_profiler()
        self.observer.close()
        if self._failure is not None:
            raise self._failure
        record = self._describe(reason, before_ns)
        if not self._exported:
            self._partial.partial_host.unlink(missing_ok=True)
            self._keep_resources(self._partial)
            raise RuntimeError(f"the window ended in its warm-up, after {self._steps} steps; nothing was recorded")
        if at_once:
            self._write(record)
            return None
        writer = threading.Thread(target=self._write_safely, args=(record,), name="chakra-capture")
        writer.start()
        return writer

    def abandon(self) -> None:
        """Give up after an error: take both observers out, and keep what they wrote."""
        with contextlib.suppress(Exception):
            self._stop_profiler()
        with contextlib.suppress(Exception):
            self.observer.close()

    def _stop_profiler(self) -> None:
        """Stop it once: a second time would end the process."""
        if self._running:
            self._running = False
            with _quietly():
                self._profiler.stop()

    def _mark(self) -> None:
        self._marks.append(time.perf_counter_ns())

    def _make_profiler(self) -> Any:
        options = self._options
        schedule = torch.profiler.schedule(wait=0, warmup=options.warmup, active=options.active, repeat=1)
        profiler = torch.profiler.profile(
            activities=sorted(torch.profiler.supported_activities(), key=str),
            schedule=lambda step: schedule(max(step - self._first, 0)),
            on_trace_ready=self._export,
            record_shapes=True,
            profile_memory=options.memory,
            with_stack=options.stacks,
            with_modules=options.stacks,
            experimental_config=_experimental(all_threads=options.seconds > 0),
            execution_trace_observer=self.observer,
        )
        # Steps are named as the user counts them, from the beginning of the loop.
        profiler.step_num = self._first
        return profiler

    def _export(self, profiler: Any) -> None:
        """Write the profile; called by the profiler, which must get to its own end whatever happens here."""
        try:
            profiler.export_chrome_trace(str(self._partial.partial_device))
            self._exported = True
        except Exception as err:
            self._failure = err

    def _note_compiled(self) -> None:
        """Say that compiled code for CPUs hides its kernels, unless it was told not to."""
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        cpp = getattr(sys.modules.get("torch._inductor.config"), "cpp", None)
        compiled = counters["stats"]["unique_graphs"] if "stats" in counters else 0
        if compiled and not torch.cuda.is_available() and not getattr(cpp, "enable_kernel_profile", True):
            self._warnings.append(
                "compiled kernels on CPU are in no profile, unless torch._inductor.config.cpp.enable_kernel_profile "
                "is set before they are compiled"
            )

    def _describe(self, reason: str, before_ns: float | None) -> dict[str, Any]:
        options = self._options
        rank, world_size = rank_and_size()
        spans = [end - begin for begin, end in zip(self._marks, self._marks[1:], strict=False)]
        recorded = spans[options.warmup :]
        return {
            "chakra_capture": 1,
            **describe_job(options, rank, world_size),
            "window": {
                "first_step": self._first + options.warmup,
                "steps": len(recorded),
                "step_ns": recorded,
                "step_before_ns": before_ns,
                "ended_by": reason,
            },
            "warnings": [*self.observer.warnings, *self._warnings],
        }

    def _write_safely(self, record: dict[str, Any]) -> None:
        try:
            self._write(record)
        except Exception as err:
            log_failure(f"could not finish the files of rank {record['rank']}", err)

    def _write(self, record: dict[str, Any]) -> None:
        anonymous = self._options.anonymous
        files = CaptureFiles(self._partial.folder, record["rank"])
        self._keep_resources(files)
        names = []
        for source, target in (
            (self._partial.partial_host, files.host),
            (self._partial.partial_device, files.device),
        ):
            if source.exists():
                if target == files.host and not is_complete(source):
                    record["warnings"].append(f"{target.name} is cut off: was the disk full?")
                compress(source, target, anonymous=anonymous)
                names.append(target.name)
        record["files"] = names
        write_manifest(files.manifest, record)
        for warning in record["warnings"]:
            log(warning)
        if names and record["rank"] == min(self._options.ranks, default=0):
            log(f"{_report(record)} -> {files.folder}")

    def _keep_resources(self, files: CaptureFiles) -> None:
        """Give what the observer collected beside its file, such as generated kernels, that file's name."""
        folder = self._partial.partial_host.with_suffix("")
        folder = folder.with_name(folder.name + "_resources")
        if folder.is_dir():
            if any(folder.iterdir()):
                folder.rename(files.host.with_name(f"host.{files.rank}_resources"))
            else:
                folder.rmdir()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep PyTorch's warnings on how it is profiled to ourselves: a job may have made errors of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _experimental(*, all_threads: bool) -> Any:
    """Return what this version of PyTorch offers beyond the profiler's arguments."""
    config = torch._C._profiler._ExperimentalConfig
    wanted = {"enable_cuda_sync_events": True, "profile_all_threads": all_threads}
    known = inspect.getdoc(config.__init__) or ""
    return config(**{name: value for name, value in wanted.items() if name in known and value})


def _report(record: dict[str, Any]) -> str:
    window = record["window"]
    steps = window["step_ns"]
    mean = sum(steps) / max(len(steps), 1)
    text = f"rank {record['rank']}: captured {len(steps)} step{'s' * (len(steps) != 1)} of {mean / 1e6:.1f} ms"
    before = window["step_before_ns"]
    return text + (f" (before the window {before / 1e6:.1f} ms: {mean / before - 1:+.0%})" if before else "")


def log(text: str) -> None:
    """Say something to the user of the job, on standard error."""
    with contextlib.suppress(Exception):
        print(f"chakra capture: {text}", file=sys.stderr, flush=True)


def log_failure(what: str, err: BaseException) -> None:
    """Say that something failed; the job goes on."""
    log(f"{what}: {type(err).__name__}: {' '.join(str(err).split())[:300]}; the job goes on")
