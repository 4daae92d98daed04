"""Python runs this at its start, as the first `sitecustomize` on the path of a job under `chakra capture`.

It may be another Python than ours, in an environment without this package: the package is taken from where it lies,
and nothing of ours gets onto the path. The `sitecustomize` that we stand in front of is run as it would have been.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


def _install() -> None:
    if "chakra_et" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "chakra_et", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
        )
        if spec is None or spec.loader is None:
            return
        module = sys.modules["chakra_et"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    from chakra_et.capture.hook import install

    install()


def _run_next() -> None:
    """Run the `sitecustomize` that comes after this one."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


try:
    _install()
except Exception as err:  # the job comes first
    print(f"chakra capture: nothing will be captured: {type(err).__name__}: {err}", file=sys.stderr)
_run_next()
