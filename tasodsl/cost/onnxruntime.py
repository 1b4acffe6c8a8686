"""What nodes cost on onnxruntime's CPU provider, measured.

A group of nodes that the runtime executes together (`groups`) is cut out of the graph (`kernel`), run under full
optimization with profiling on, and its kernels' times are kept in the cost table: each kernel is measured once on a
machine. The runtime keeps images of convolutions in a blocked layout of its own: the reorders that a lone group needs
are counted apart, and charged only where a value passes between the two layouts in the graph at hand.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from tasodsl.cost.groups import Groups
from tasodsl.cost.kernel import CannotMeasure, Kernel, kernel_model, kernel_of
from tasodsl.cost.layout import Layout, Measured
from tasodsl.cost.profile import calibrated, kernel_seconds, reorder_model
from tasodsl.cost.roofline import NO_WORK, RooflineCost
from tasodsl.cost.sizes import NoSize, Sizes, representative
from tasodsl.cost.table import CostTable, cpu_name
from tasodsl.graph.graph import Graph, Node
from tasodsl.runtime import RuntimeRefused, runtime_version

FUSION_REACH = 4
"""How many nodes away a change can alter what a node costs."""
DISPATCH_SECONDS = 1e-6
"""What the runtime spends on a node that only gives its operand another shape."""
_log = logging.getLogger(__name__)


class OnnxruntimeCost:
    """Costs for the graphs of one model (a value's name must mean one thing in all of them)."""

    def __init__(
        self,
        threads: int = 1,
        table: CostTable | None = None,
        dims: Mapping[str, int] | None = None,
    ) -> None:
        """Measure with `threads` intra-op threads and keep results in `table` (the user's own when None).

        `dims` says which sizes stand for free dimensions: see `sizes.representative`.
        """
        self.threads = threads
        self.table = CostTable() if table is None else table
        self.environment = f"onnxruntime {runtime_version()}; threads {threads}; {cpu_name()}"
        self.measured = 0
        """Kernels measured by this object, rather than found in the table."""
        self.estimated: Counter[str] = Counter()
        """Operators whose cost is an estimate, because they cannot be run on their own."""
        self._known: dict[tuple[Node, ...], Measured] = {}
        self._last: Layout | None = None
        self._sizes: Sizes | None = None
        self._dims = dims

    @property
    def label(self) -> str:
        return f"measured on {self.environment}"

    def graph_seconds(self, graph: Graph) -> float:
        """The sum of all nodes' costs."""
        return sum(self.node_seconds(graph, node) for node in graph.nodes.values())

    def node_seconds(self, graph: Graph, node: Node) -> float:
        """What the node adds to a run where it stands: its whole group's time at the group's last node, else 0."""
        if not node.defined or node.op_type in ("Identity", "Dropout") or _all_constant(graph, node):
            return 0.0
        if node.op_type in NO_WORK:
            return DISPATCH_SECONDS
        layout = self._layout(graph)
        groups = layout.groups
        if groups.absorbed(node):
            return 0.0
        nodes = groups.chain(node)
        measured = self._group(graph, nodes)
        seconds = measured.seconds
        for part in nodes[1:]:
            if groups.is_residual(part) and not all(layout.blocked(v) for v in part.inputs):
                seconds += self._group(graph, (part,)).seconds
        if measured.blocked_in and layout.pays_reorder(nodes):
            seconds += self._reorder(graph, nodes[0].inputs[0], "ReorderInput")
        if layout.is_reordered_back(node.id):
            seconds += self._reorder(graph, node.id, "ReorderOutput")
        return seconds

    def _layout(self, graph: Graph) -> Layout:
        """What is known of the graph asked about last: a search asks about many nodes of one graph in a row."""
        if self._last is None or self._last.graph is not graph:
            self._last = Layout(Groups(graph), self._group)
        return self._last

    def sizes(self, graph: Graph) -> Sizes:
        """The sizes at which kernels are measured, chosen on the first graph."""
        if self._sizes is None:
            self._sizes = representative(graph, self._dims)
        return self._sizes

    def _group(self, graph: Graph, nodes: tuple[Node, ...]) -> Measured:
        known = self._known.get(nodes)
        if known is None:
            known = self._known[nodes] = self._look_up(graph, nodes)
        return known

    def _look_up(self, graph: Graph, nodes: tuple[Node, ...]) -> Measured:
        try:
            kernel = kernel_of(graph, self._layout(graph).groups.bare(nodes), self.sizes(graph))
            seconds = self.table.get(self.environment, kernel.key)
            layout = self.table.get(self.environment, _layout_key(kernel))
            if seconds is not None and layout is not None:
                return Measured(seconds, bool(int(layout) & 1), bool(int(layout) & 2))
            return self._measure(graph, kernel)
        except (CannotMeasure, NoSize, RuntimeRefused) as error:
            _log.debug("%s is not measured: %s", nodes[-1].op_type, error)
            self.estimated[nodes[-1].op_type] += 1
            roofline = RooflineCost(sizes=self.sizes(graph))
            return Measured(sum(roofline.node_seconds(graph, n) for n in nodes))

    def _measure(self, graph: Graph, kernel: Kernel) -> Measured:
        times = kernel_seconds(*kernel_model(graph, kernel), self.threads, self._profiler_seconds())
        seconds = sum(t for op, t in times if not op.startswith("Reorder"))
        found = {op for op, _ in times}
        measured = Measured(seconds, "ReorderInput" in found, "ReorderOutput" in found)
        self.measured += 1
        layout = measured.blocked_in + 2 * measured.blocked_out
        self.table.put(self.environment, {kernel.key: seconds, _layout_key(kernel): layout})
        return measured

    def _profiler_seconds(self) -> float:
        """What profiling itself adds to a kernel's time: found once on a machine, from a row of tiny kernels."""
        key = "profiler"
        known = self.table.get(self.environment, key)
        if known is None:
            known = calibrated(self.threads)
            self.table.put(self.environment, {key: known})
        return known

    def _reorder(self, graph: Graph, value: str, operator: str) -> float:
        """The seconds of turning an image into the blocked layout or back."""
        shape = graph.shape(value)
        if shape is None:
            return 0.0
        try:
            sizes = self.sizes(graph).shape(shape)
            key = f"{operator} float32{list(sizes)}"
            known = self.table.get(self.environment, key)
            if known is None:
                times = kernel_seconds(*reorder_model(sizes), self.threads, self._profiler_seconds())
                known = sum(t for op, t in times if op == operator)
                self.table.put(self.environment, {key: known})
        except (NoSize, RuntimeRefused):
            return 0.0
        return known


def _layout_key(kernel: Kernel) -> str:
    return f"layout {kernel.key}"


def _all_constant(graph: Graph, node: Node) -> bool:
    """The runtime folds such a node when it loads the model."""
    return all(v in graph.constants for v in node.operands())
