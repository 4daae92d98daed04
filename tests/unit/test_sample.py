import gzip
import json

from chakra_et.sample import sample_folder

FILES = ["device.0.json.gz", "device.1.json.gz", "host.0.json.gz", "host.1.json.gz"]


def test_sample_is_complete_and_small():
    files = sorted(sample_folder().glob("*.json.gz"))
    assert [path.name for path in files] == FILES
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_sample_pairs_belong_together():
    for rank in (0, 1):
        host = json.loads(gzip.decompress((sample_folder() / f"host.{rank}.json.gz").read_bytes()))
        device = json.loads(gzip.decompress((sample_folder() / f"device.{rank}.json.gz").read_bytes()))
        assert device["distributedInfo"]["rank"] == rank
        recorded = {
            event["args"]["Record function id"]
            for event in device["traceEvents"]
            if "Record function id" in event.get("args", {})
        }
        stated = {attr["value"] for node in host["nodes"] for attr in node["attrs"] if attr["name"] == "rf_id"}
        assert len(recorded & stated) > 0.9 * len(recorded)


def test_sample_tells_nothing_about_the_machine():
    for path in sample_folder().glob("*.json.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not any(word in text for word in ("/home/", "/root/", "/usr/", "/tmp/", ".py("))
        if path.name.startswith("device"):
            assert '"host_name": "server"' in text
