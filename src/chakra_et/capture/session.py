"""One window: both observers over the same steps, and the files that come of it."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.profiler

from chakra_et.capture.claim import Claim
from chakra_et.capture.files import CaptureFiles, compress, is_complete, write_manifest
from chakra_et.capture.groups import rank_and_size
from chakra_et.capture.manifest import describe_job
from chakra_et.capture.observer import Observer, quietly
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
        self._spans: list[int] = []
        self._step_began_ns = 0
        self._paused_ns = 0
        self._warnings: list[str] = []
        self._exported = False
        self._failure: Exception | None = None
        self._running = False
        self.is_lost = False
        self._thread = threading.get_ident()
        self._rank, _ = rank_and_size()
        Path(options.out).mkdir(parents=True, exist_ok=True)
        self._partial = CaptureFiles(Path(options.out), self._rank)
        with contextlib.ExitStack() as undo:
            self._claim = Claim(self._partial.folder, self._rank)
            undo.callback(self._claim.release)
            self._observer = Observer(self._partial.partial_host, index_ranges=options.index_ranges)
            with quietly():
                self._profiler = self._make_profiler()
            undo.pop_all()

    @property
    def is_on_this_thread(self) -> bool:
        """True on the thread that began the window: PyTorch lets no other one end it."""
        return self._thread == threading.get_ident()

    def has(self, profiler: Any) -> bool:
        """Tell whether a profiler of PyTorch is the window's."""
        return profiler is self._profiler.profiler

    def start(self) -> None:
        """Begin the window, with its warm-up."""
        self._note_compiled()
        self._running = True
        with self._pause():
            self._profiler.start()

    def step(self) -> bool:
        """End a step; return whether the window is over."""
        self._end_step()
        if self._failure is None:
            with self._pause():
                self._profiler.step()
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
        # What comes after the last step is one only where there is no other.
        ended = self._steps
        if not self._exported and ended <= self._options.warmup:
            self._end_step()
        self._stop_profiler()
        self._observer.close()
        if self._failure is not None:
            raise self._failure
        record = self._describe(reason, before_ns)
        if not self._exported:
            self._partial.partial_host.unlink(missing_ok=True)
            self._keep_resources(self._partial)
            steps = f"{ended} step{'s' * (ended != 1)}"
            raise RuntimeError(f"the window ended in its warm-up, after {steps}; nothing was recorded")
        if at_once:
            self._write(record)
            return None
        writer = threading.Thread(target=self._write_safely, args=(record,), name="chakra-capture")
        writer.start()
        return writer

    def lose(self) -> None:
        """Say, on another thread, that a profiler begins there: it takes the records of this one."""
        self.is_lost = True
        self._failure = RuntimeError("another thread began a profiler in the window")

    def abandon(self) -> None:
        """Give up after an error: take both observers out, and keep what they wrote."""
        with contextlib.suppress(Exception):
            self._stop_profiler()
        with contextlib.suppress(Exception):
            self._observer.close()
        self._claim.release()

    def leave_to_parent(self) -> None:
        """In a forked child: record no more, and touch nothing of the parent's."""
        self._observer.leave_to_parent()
        self._claim.leave_to_parent()

    def _stop_profiler(self) -> None:
        """Stop it once: a second time would end the process."""
        if self._running:
            self._running = False
            if self.is_lost:
                # The other thread's profiler would be stopped.
                return
            with self._pause():
                self._profiler.stop()

    def _end_step(self) -> None:
        self._steps += 1
        self._spans.append(time.perf_counter_ns() - self._step_began_ns)

    @contextlib.contextmanager
    def _pause(self) -> Iterator[None]:
        """Let the profiler work between two steps: the time is no step's."""
        began = time.perf_counter_ns()
        try:
            with quietly():
                yield
        finally:
            self._step_began_ns = time.perf_counter_ns()
            self._paused_ns += self._step_began_ns - began

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
            execution_trace_observer=self._observer,
        )
        # Steps are named as the user counts them, from the beginning of the loop.
        profiler.step_num = self._first
        return profiler

    def _export(self, profiler: Any) -> None:
        """Write the profile; called by the profiler, which must get to its own end whatever happens here."""
        try:
            results = profiler.profiler.kineto_results
            # Without a beginning there are no records, and to export them ends the process. PyTorch 2.3 says by itself.
            if hasattr(results, "trace_start_ns") and not results.trace_start_ns():
                raise RuntimeError("expected a window that ends on the thread that began it, without another profiler")
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
        recorded = self._spans[options.warmup :]
        return {
            "chakra_capture": 1,
            **describe_job(options, rank, world_size),
            "window": {
                "first_step": self._first + options.warmup,
                "steps": len(recorded),
                "step_ns": recorded,
                "step_before_ns": before_ns,
                "pause_ns": self._paused_ns,
                "ended_by": reason,
            },
            "warnings": [*self._observer.warnings, *self._warnings],
        }

    def _write_safely(self, record: dict[str, Any]) -> None:
        try:
            self._write(record)
        except Exception as err:
            log_failure(f"could not finish the files of rank {record['rank']}", err)

    def _write(self, record: dict[str, Any]) -> None:
        try:
            self._write_files(record)
        finally:
            self._claim.release()

    def _write_files(self, record: dict[str, Any]) -> None:
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
        if files.device.name not in names:
            # Kineto raises nothing.
            raise OSError(f"{self._partial.partial_device} was not written, or is gone")
        record["files"] = names
        write_manifest(files.manifest, record)
        for warning in record["warnings"]:
            log(warning)
        if names and record["rank"] == min(self._options.ranks, default=0):
            log(f"rank {record['rank']}: captured {self._summary(record['window'])} -> {files.folder}")

    def _summary(self, window: dict[str, Any]) -> str:
        steps, before = window["step_ns"], window["step_before_ns"]
        mean = sum(steps) / max(len(steps), 1)
        if self._options.seconds > 0:
            return f"{mean / 1e9:.2f} s"
        text = f"{len(steps)} step{'s' * (len(steps) != 1)} of {mean / 1e6:.1f} ms"
        text += f" (before the window {before / 1e6:.1f} ms: {mean / before - 1:+.0%})" if before else ""
        return f"{text}, and {window['pause_ns'] / 1e6:.1f} ms to begin and end"

    def _keep_resources(self, files: CaptureFiles) -> None:
        """Give what the observer collected beside its file, such as generated kernels, that file's name."""
        folder = self._partial.partial_host.with_suffix("")
        folder = folder.with_name(folder.name + "_resources")
        if folder.is_dir():
            if any(folder.iterdir()):
                folder.rename(files.host.with_name(f"host.{files.rank}_resources"))
            else:
                folder.rmdir()


def _experimental(*, all_threads: bool) -> Any:
    """Return what this version of PyTorch offers beyond the profiler's arguments."""
    config = torch._C._profiler._ExperimentalConfig
    wanted = {"enable_cuda_sync_events": True, "profile_all_threads": all_threads}
    known = inspect.getdoc(config.__init__) or ""
    return config(**{name: value for name, value in wanted.items() if name in known and value})


def log(text: str) -> None:
    """Say something to the user of the job, on standard error."""
    with contextlib.suppress(Exception):
        print(f"chakra capture: {text}", file=sys.stderr, flush=True)


def log_failure(what: str, err: BaseException) -> None:
    """Say that something failed; the job goes on."""
    log(f"{what}: {type(err).__name__}: {' '.join(str(err).split())[:300]}; the job goes on")
