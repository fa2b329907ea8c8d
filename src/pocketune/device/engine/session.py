"""The graphs of a kit in ONNX Runtime. Only this module imports the runtime."""

import contextlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.device.machine import available_cores
from pocketune.device.memory.addresses import check_addresses, runtime_addresses
from pocketune.device.memory.graphs import arena_region, most_arena_bytes
from pocketune.device.memory.process import RUNTIME_BYTES, check_group, reclaim
from pocketune.errors import OutOfMemory, PocketuneError, first_line
from pocketune.files import refuse_undecodable, shown
from pocketune.heap import freed_at_once
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.names import BLOCKED_STEP, FEATURES, STEP

_THREADS = min(available_cores(), 8)
check_addresses(runtime_addresses(_THREADS), "ONNX Runtime")
check_group(RUNTIME_BYTES, "ONNX Runtime with Python and numpy")
reclaim()  # otherwise this import sets the peak of a small process
try:
    import onnxruntime as ort
except ImportError as error:
    raise PocketuneError(
        f"onnxruntime cannot be loaded: {shown(str(error), 200)}; install it again, or allow the "
        "process more memory"
    ) from error

ort.disable_telemetry_events()  # wheels for Windows ignore ORT_DISABLE_TELEMETRY
_CPUINFO = Path("/proc/cpuinfo")
RUNTIME = f"onnxruntime {ort.__version__}"
"""The runtime and its version."""

_NO_MEMORY = "bad_alloc", "annot allocate memory", "ailed to allocate memory"
"""How the runtime and the C++ library word that the system refused memory."""

_OVER_LIMIT = "Available memory of"
"""How the runtime words that its arena would outgrow its limit."""

Arrays = Mapping[str, NDArray[Any]]


@cache
def products_saturate() -> bool:
    """Whether sums of uint8 x int8 products may overflow 16 bits and be clipped.

    They may on x86 without VNNI instructions. If the flags of an x86 processor cannot be read, the
    answer is yes, which costs a little speed but no accuracy.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        return "vnni" not in _CPUINFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return True


_TO_THE_NEXT_POWER_OF_TWO, _REGION = 0, 1 << 25
_arena_bytes: int | None = -1
"""Most bytes of the arena that sessions get; None without a limit, and -1 before the first."""


def _share_arena(most: int | None, region: int) -> None:
    """Let the sessions that are opened next share an arena of at most so many bytes, or more.

    All sessions share one, since two would hold the peaks of both graphs. Only a graph that may
    take over twice as much as those before gets another, and one with a limit after those without:
    the limits of a kit's graphs differ a little by the number of classes. The arena reserves so
    many bytes of addresses first, and twice as many where these are full.
    """
    global _arena_bytes
    if _arena_bytes is None:
        suffices = most is None
    else:
        suffices = most is not None and most <= 2 * _arena_bytes
    if suffices:
        return
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    options = {
        "max_mem": most or 0,
        # Few large regions: adjacent free chunks of a region can hold a larger tensor, and pages
        # that were never used take no memory.
        "arena_extend_strategy": _TO_THE_NEXT_POWER_OF_TWO,
        "initial_chunk_size_bytes": region,
        "max_dead_bytes_per_chunk": 1 << 16,  # split a free chunk rather than waste half of it
    }
    ort.create_and_register_allocator(memory, ort.OrtArenaCfg(options))
    _arena_bytes = most


def open_session(
    model: Path | bytes,
    *,
    as_written: bool,
    integers: bool = False,
    packed: bool = True,
    arena: int | None = None,
    region: int = _REGION,
) -> ort.InferenceSession:
    """A session on a graph, computing on the CPU.

    Args:
        model: The graph, as a file or as its bytes.
        as_written: Execute the nodes unchanged and in the file's order, which the compiler has
            chosen to need the least memory. Otherwise the runtime optimizes the graph, which pays
            off if convolutions have constant kernels.
        integers: Fuse operators between dequantized tensors into integer operators. Otherwise
            weights stored in 8 bits are converted to float32 once, when the graph is opened.
        packed: Let the runtime keep constant kernels in the layouts that its kernels read.
        arena: Most bytes that it may take while it runs, or a larger limit of an earlier session
            with one; None without a limit.
        region: Bytes of addresses for its arena, unless it takes that of an earlier session.
    """
    if isinstance(model, Path):
        refuse_undecodable(model)
    _share_arena(arena, region)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = _THREADS, 1
    # between its runs, the waiting threads of a session would slow down those of another
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # errors are raised
    if integers:
        precise = "1" if products_saturate() else "0"  # uint8 x uint8, slower and exact
        options.add_session_config_entry("session.x64quantprecision", precise)
    else:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not packed:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if as_written:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_reuse = False
    session = start_session(str(model) if isinstance(model, Path) else model, options)
    session._model_bytes = None  # it would keep the bytes, which it no longer needs
    return session


def start_session(model: str | bytes, options: ort.SessionOptions) -> ort.InferenceSession:
    """A session with threads of its own, or with those that the program shares between all."""
    settings: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}
    try:
        return ort.InferenceSession(model, options, **settings)
    except RuntimeError as error:
        if "use_per_session_threads" not in str(error):
            raise
        options.use_per_session_threads = False
        options.intra_op_num_threads = options.inter_op_num_threads = 0
        return ort.InferenceSession(model, options, **settings)


def write_adapter(path: Path, values: Arrays) -> None:
    """Write C-contiguous arrays as an adapter, by the names of the inputs that they replace."""
    adapter = ort.AdapterFormat()
    adapter.set_adapter_version(1)
    adapter.set_model_version(1)
    adapter.set_parameters(
        {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in values.items()}
    )
    adapter.export_adapter(str(path))


def run_adapted(session: ort.InferenceSession, adapter: Path, feeds: Arrays) -> NDArray[Any]:
    """The logits of a session, with an adapter for the inputs that `feeds` lack."""
    loaded, options = ort.LoraAdapter(), ort.RunOptions()
    loaded.Load(str(adapter))
    options.add_active_adapter(loaded)
    # `run` of the Python class would ask for the inputs that the adapter holds.
    (output,) = session._sess.run(["logits"], dict(feeds), options)
    return np.asarray(output)


class Graph:
    """A graph in which some inputs are bound to arrays.

    Args:
        kit: The kit.
        name: Name of the graph's file.
        bound: C-contiguous arrays by input name. Each run reads them in place and uses their
            current values. Arrays that are not inputs of the graph are ignored.
        inputs: Names of the inputs that differ from run to run.
        outputs: Names of the outputs to compute.

    Raises:
        KitError: The graph does not parse, has an operator that the runtime lacks, or its inputs
            and outputs are not those of this kit.
        OutOfMemory: The system refuses the memory to open it.
    """

    def __init__(
        self, kit: Kit, name: str, *, bound: Arrays, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self._where = where = f"{name} of the kit {kit.path}"
        reclaim()
        try:
            with freed_at_once():
                self._session = _open(kit, name, kit.manifest.task.count(bound))
        except PocketuneError:
            raise
        except Exception as error:  # the runtime's own types, which have no common base
            damage = "it is damaged, or made for a newer runtime"
            raise _failure(f"{where} cannot be opened", error, damage) from error
        reclaim()  # half of the memory for opening it is no longer needed
        taken = {value.name for value in self._session.get_inputs()}
        given = {value.name for value in self._session.get_outputs()}
        strange = sorted((taken - {*bound, *inputs}) | (set(outputs) - given))
        if strange:
            raise KitError(f"{where} does not match its manifest: check its tensor {strange[0]}")
        self._taken = taken
        self.bind(bound)
        self._inputs = [key for key in inputs if key in taken]
        self._outputs = list(outputs)

    def bind(self, bound: Arrays) -> None:
        """Bind other arrays, under the same names and from the next run on."""
        self._bound = {key: array for key, array in bound.items() if key in self._taken}

    def check(self, name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
        """Check the shape of an output, which no graph has to declare.

        Raises:
            KitError: It is another one.
        """
        if found != expected:
            raise KitError(f"{self._where} gives {name} in the shape {found}, not {expected}")

    def run(self, feeds: Arrays, *, only: str | None = None) -> dict[str, NDArray[Any]]:
        """Compute all outputs by name, or one; they are views of the runtime's memory.

        Raises:
            KitError: The runtime cannot compute them.
            OutOfMemory: The system refuses the memory for it.
        """
        feeds = {**self._bound, **{name: feeds[name] for name in self._inputs}}
        outputs = self._outputs if only is None else [only]
        try:
            values = self._session.run(outputs, feeds)
        except Exception as error:  # the runtime's own types, which have no common base
            what = f"{self._where} cannot be computed"
            raise _failure(what, error, "the kit is damaged") from error
        return {name: np.asarray(v) for name, v in zip(outputs, values, strict=True)}


def _failure(what: str, error: Exception, otherwise: str) -> PocketuneError:
    """What failed and the reason, from an error of the runtime, with the runtime's own words."""
    said = first_line(error)
    if _OVER_LIMIT in str(error):
        return KitError(
            f"{what}: it takes far more memory than its manifest says; use another kit, unless you "
            "know where it comes from"
        )
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return OutOfMemory(
            f"{what}: the system refused memory ({said}); allow this process more, or use a "
            "smaller kit"
        )
    return KitError(f"{what}: {otherwise} ({said})")


def _open(kit: Kit, name: str, classes: int) -> ort.InferenceSession:
    """A session on a graph; for the step, on the blocked one if the processor can run it."""
    manifest = kit.manifest
    opened = partial(
        open_session,
        arena=most_arena_bytes(manifest, classes),
        region=arena_region(manifest),
    )
    if name != STEP:
        integers = name == FEATURES and manifest.computes_integers
        return opened(kit.source(name), as_written=False, integers=integers)
    packed = manifest.graphs["step"].packs
    if BLOCKED_STEP in manifest.files:
        with contextlib.suppress(Exception):  # the runtime's own types have no common base
            return opened(kit.source(BLOCKED_STEP), as_written=True, packed=packed)
    return opened(kit.source(STEP), as_written=True, packed=packed)
