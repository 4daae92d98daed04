"""Files that the public tools wrote."""

import tarfile

import pytest

from chakra_et.io import read, write
from chakra_et.io.et import et_chunks, parse_et
from chakra_et.ir import NodeType
from tests.conftest import ROOT
from tests.unit.io.messages import messages_of, written

SHARED = ROOT.parent / "shared" / "traces" / "chakra-et"

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of public traces isn't there")


@pytest.fixture
def extracted(tmp_path):
    def extract(archive, name):
        with tarfile.open(SHARED / archive) as bundle:
            member = next(entry for entry in bundle.getmembers() if entry.name.endswith(name))
            target = tmp_path / name
            target.write_bytes(bundle.extractfile(member).read())
        return target

    return extract


def test_every_message_of_an_et_stays_equal(extracted, tmp_path):
    path = extracted("resnet_et.tar.gz", "chakra.0.et")
    trace = read(path)
    assert (len(trace), trace.rank, trace.metadata.typed_edges) == (3664, 0, False)
    assert (trace.nodes["type"] == int(NodeType.COMM_COLL_NODE)).sum() == 21
    before = messages_of(path.read_bytes())
    assert written(trace) == before
    packed = write(trace, tmp_path / "copy.0.et.gz")
    assert written(read(packed)) == before


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_through_the_other_formats(extracted, tmp_path, suffix):
    path = extracted("resnet_et.tar.gz", "chakra.0.et")
    copy = read(write(read(path), tmp_path / f"copy.0{suffix}"))
    assert written(copy) == messages_of(path.read_bytes())


@pytest.mark.parametrize(("name", "count"), [("/chakra.0.json", 3664), ("small_chakra.0.json", None)])
def test_workload_graph(extracted, name, count):
    trace = read(extracted("resnet_json.tar.gz", name.strip("/")))
    assert trace.rank == 0
    if count is not None:
        assert len(trace) == count
    assert trace.nodes["id"].is_unique().all()
    again = parse_et(b"".join(et_chunks(trace)), "x.0.et")
    assert again.nodes.equals(trace.nodes)
