"""`Flows`: what the engine must know of a network, whatever its model: latencies, loads on links, capacities.

A communication that all its participants have reached first spends its latency, in which it uses no bandwidth. Then it
is fluid: with a speed of x (share of the whole per ns), it takes x times its bytes from each of its links. Speeds of
communications that run at the same time are fair (`chakra_et._jit.fair`): no link carries more than its capacity, and
each link gives equal bandwidth to those that it holds back. Between messages that is max-min fairness: none of them
could be faster without another one, which is no faster, becoming slower. It ends when its share has reached 1.

Shape letters: C communications, K loads, L links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Flows"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """The communications of a workload, as a network sees them.

    Attributes:
        latency_ns: float64 [C]: time before a communication begins to use links.
        indptr: int64 [C + 1]: where each communication's loads begin.
        links: int64 [K]: link numbers, unique inside one communication.
        bytes: float64 [K]: bytes that the communication sends over that link, above 0.
        capacity: float64 [L]: bytes per ns of each link.
        link_names: [L]: what a link is, for people: ``scale_out up of rank 3``.
        algorithm: [C]: which algorithm was chosen, such as ``ring``, ``tree``; ``measured`` for fixed times.
        own_links: True if every communication uses only links of its own participants, so that ranks can be folded.
    """

    latency_ns: Float
    indptr: Int
    links: Int
    bytes: Float
    capacity: Float
    link_names: tuple[str, ...]
    algorithm: tuple[str, ...]
    own_links: bool
