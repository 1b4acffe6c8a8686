"""Reading `.taso` files: the paths a person gives, found, read and parsed. Failures come back as diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasodsl import syntax as s
from tasodsl.diagnostics import Diagnostic
from tasodsl.parse import parse_source
from tasodsl.source import Source, Span

SUFFIX = ".taso"


def find_files(paths: Sequence[Path]) -> tuple[list[Path], list[Diagnostic]]:
    """The files given and the `.taso` files below the folders given: sorted within each folder, each file once."""
    files: dict[Path, Path] = {}
    problems: list[Diagnostic] = []
    for path in paths:
        if not path.is_dir():
            files.setdefault(_identity(path), path)
            continue
        try:
            found = sorted(p for p in path.rglob(f"*{SUFFIX}") if p.is_file())
        except OSError as error:
            problems.append(_file_problem(path, "E0001", f"cannot read `{path}`: {_reason(error)}", ""))
            continue
        if not found:
            help = f"rule files end in `{SUFFIX}`; give a file, or a folder that holds some"
            problems.append(_file_problem(path, "E0002", f"the folder `{path}` holds no `{SUFFIX}` files", help))
        for file in found:
            files.setdefault(_identity(file), file)
    return list(files.values()), problems


def read_source(path: Path) -> tuple[Source | None, list[Diagnostic]]:
    """The text of a file, or why there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, [_file_problem(path, "E0001", f"there is no file `{path}`", "check the path")]
    except OSError as error:
        return None, [_file_problem(path, "E0001", f"cannot read `{path}`: {_reason(error)}", "")]
    try:
        return Source(str(path), data.decode("utf-8")), []
    except UnicodeDecodeError as error:
        # What comes before the bad byte is text, so its line can be shown.
        before = Source(str(path), data[: error.start].decode("utf-8"))
        span = Span(before, len(before.text), len(before.text))
        message = f"`{path}` is not UTF-8 text: the byte 0x{data[error.start]:02x} at offset {error.start}"
        return None, [Diagnostic("E0003", message, span, "up to here it is text", "save the file as UTF-8")]


def read_modules(paths: Sequence[Path]) -> tuple[list[s.Module], list[Diagnostic]]:
    """The modules of all files at `paths`, with everything that could not be read or parsed."""
    files, problems = find_files(paths)
    modules: list[s.Module] = []
    for file in files:
        source, errors = read_source(file)
        problems.extend(errors)
        if source is None:
            continue
        module, errors = parse_source(source)
        modules.append(module)
        problems.extend(errors)
    return modules, problems


def _identity(path: Path) -> Path:
    """One name for a file however it is reached, so that it is not read twice."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path.absolute()


def _file_problem(path: Path, code: str, message: str, help: str) -> Diagnostic:
    return Diagnostic(code, message, Span(Source(str(path), ""), 0, 0), "", help)


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
