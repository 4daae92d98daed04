"""What runs inside the user's job: the standard library and the framework, and nothing else.

Captures meet everything after them in files alone: ``host.<rank>.json.gz`` (execution trace), ``device.<rank>.json.gz``
(Kineto profile) and ``manifest.<rank>.json``.
"""
