"""Captures inside real frameworks on CPU: each where it is installed."""

import json
import os
import warnings

import pytest

torch = pytest.importorskip("torch")

import chakra_et as chakra  # noqa: E402

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore"),
]
FILES = ["device.0.json.gz", "host.0.json.gz", "manifest.0.json"]


def steps_of(folder):
    """Return the steps of a capture, after a look at its files and at its trace."""
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == FILES
    (trace,) = chakra.convert(folder).traces
    names = trace.nodes["name"].to_list()
    assert "aten::addmm" in names
    assert any(name.startswith("Optimizer.step") for name in names)
    return [int(name.removeprefix("ProfilerStep#")) for name in names if name.startswith("ProfilerStep#")]


def loader():
    return torch.utils.data.DataLoader(torch.randn(48, 8), batch_size=4)


def test_lightning(tmp_path):
    pl = pytest.importorskip("lightning.pytorch")
    from chakra_et.capture.lightning import ChakraCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch, index):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    callback = ChakraCallback(tmp_path / "out", wait=2, warmup=1, active=2)
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accelerator="cpu", accumulate_grad_batches=2, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), loader())
    assert steps_of(tmp_path / "out") == [3, 4]


def test_lightning_writes_what_was_recorded_before_an_error(tmp_path):
    pl = pytest.importorskip("lightning.pytorch")
    from chakra_et.capture.lightning import ChakraCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch, index):
            if index == 3:
                raise ZeroDivisionError
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    callback = ChakraCallback(tmp_path / "out", wait=1, active=50)
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accelerator="cpu", default_root_dir=tmp_path,
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        trainer.fit(Module(), loader())
    assert steps_of(tmp_path / "out")[:2] == [1, 2]
    assert json.loads((tmp_path / "out" / "manifest.0.json").read_text())["window"]["ended_by"] == "exception"


def test_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    from chakra_et.capture.accelerate import ChakraProfile

    handler = ChakraProfile(out=str(tmp_path / "out"), options={"wait": 2, "active": 2})
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(8, 8)
    model, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader())
    with accelerator.profile(handler) as profiler:
        for batch in batches:
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    assert steps_of(tmp_path / "out") == [2, 3]


def test_deepspeed(tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    deepspeed = pytest.importorskip("deepspeed")
    from chakra_et.capture.deepspeed import record_engine
    from tests.integration.processes import free_port

    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(8, 8)
    config = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    try:
        with record_engine(engine, tmp_path / "out", wait=2, active=2):
            for batch in loader():
                engine.backward(engine(batch).square().mean())
                engine.step()
        assert steps_of(tmp_path / "out") == [2, 3]
    finally:
        torch.distributed.destroy_process_group()


def test_torchtitan(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchtitan.tools.profiler")
    from chakra_et.capture.torchtitan import ChakraProfiler

    config = ChakraProfiler.Config(enable_profiling=True, profile_freq=5, profiler_warmup=1, profiler_active=2)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    with config.build(global_step=0, base_folder=str(tmp_path)) as profiler:
        for batch in loader():
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    assert steps_of(tmp_path / os.path.join("profiling", "traces")) == [3, 4]
    assert ChakraProfiler.Config().build(global_step=0).build_torch_profiler(
        global_step=0, base_folder="", leaf_folder=""
    ) is None  # fmt: skip
