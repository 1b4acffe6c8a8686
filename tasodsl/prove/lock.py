"""Lock files: proofs remembered by the content of all that they rest on.

A key covers the checked declaration, the operators and functions it rests on, the sources of the prover, and the
solver's version; a proof whose key is another is stale, and ignored. Two locks are trusted: the one that ships beside
the rules, and the user's own in the cache folder. A stranger's rules bring no lock that is believed.

Nothing here imports the solver.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from tasodsl import syntax as s
from tasodsl.match.pattern import Scope
from tasodsl.prove.verdict import Verdict
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

FORMAT = "tasodsl proofs 1"
Declaration = s.RuleDecl | s.AxiomDecl
PACKAGE = Path(__file__).resolve().parent.parent
SOURCES = ("prove/*.py", "scalar.py", "elaborate.py", "evaluate.py", "numpy_target.py", "tensors.py", "match/target.py")
"""What decides a verdict besides the rules."""
MOST = 5000
"""Entries that the user's own lock keeps."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A proof: whose it is, and what it says."""

    name: str
    key: str
    engine: str
    scope: Scope
    seconds: float


def shipped_lock() -> Path:
    """The lock beside the rules that ship with tasodsl."""
    return rules_path() / "taso.lock"


def user_lock() -> Path:
    """The lock for all other rules, in `$TASODSL_CACHE` or the user's cache folder."""
    chosen = os.environ.get("TASODSL_CACHE")
    if chosen:
        return Path(chosen) / "proofs.json"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tasodsl" / "proofs.json"


def trusted_verdicts(rules: RuleSet, declarations: Iterable[Declaration] | None = None) -> dict[str, Verdict]:
    """The proofs on record of declarations (of all rules when None) as they stand, by label: a rule's is its name."""
    known = {e.key: e for path in (user_lock(), shipped_lock()) for e in read_lock(path)}
    keys = Keys(rules)
    out: dict[str, Verdict] = {}
    for declaration in rules.rules.values() if declarations is None else declarations:
        entry = known.get(keys.of(declaration))
        if entry is not None:
            out[label(declaration)] = _verdict(declaration, entry)
    return out


def label(declaration: Declaration) -> str:
    """What the declaration is called in a lock: a rule and an axiom may have one name."""
    return f"axiom {declaration.name}" if isinstance(declaration, s.AxiomDecl) else declaration.name


def _verdict(declaration: Declaration, entry: Entry) -> Verdict:
    kind = "axiom" if isinstance(declaration, s.AxiomDecl) else "rule"
    return Verdict(declaration.name, kind, "proved", entry.engine, entry.scope, entry.seconds, locked=True)


def remember(rules: RuleSet, verdicts: Iterable[tuple[Declaration, Verdict]]) -> None:
    """Put new proofs on record: those of shipped rules beside them (where that can be written), others in the user's
    lock. What cannot be written is proved again next time."""
    keys = Keys(rules)
    shipped: list[Entry] = []
    own: list[Entry] = []
    for declaration, v in verdicts:
        if v.status != "proved" or v.faults or v.scope is None or v.locked:
            continue
        entry = Entry(label(declaration), keys.of(declaration), v.engine, v.scope, round(v.seconds, 2))
        (shipped if _is_shipped(declaration) else own).append(entry)
    if shipped and not _merge(shipped_lock(), shipped):
        own.extend(shipped)
    if own:
        _merge(user_lock(), own)


def _is_shipped(declaration: Declaration) -> bool:
    return rules_path().resolve() in Path(declaration.span.source.name).resolve().parents


def read_lock(path: Path) -> list[Entry]:
    """The entries of a lock file; none where it is missing or damaged."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return []
        return [_entry(e) for e in cast(list[dict[str, Any]], data["proofs"])]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _entry(e: dict[str, Any]) -> Entry:
    scope = Scope(int(e["max_rank"]), int(e["max_arity"]))
    return Entry(str(e["name"]), str(e["key"]), str(e["engine"]), scope, float(e["seconds"]))


def _merge(path: Path, entries: list[Entry]) -> bool:
    """Add entries to a lock, in the place of those of the same names; whether it could be written."""
    names = {e.name for e in entries}
    kept = [e for e in read_lock(path) if e.name not in names][: MOST - len(entries)]
    proofs = [
        {
            "name": e.name,
            "key": e.key,
            "engine": e.engine,
            "max_rank": e.scope.max_rank,
            "max_arity": e.scope.max_arity,
            "seconds": e.seconds,
        }
        for e in sorted([*kept, *entries], key=lambda e: (e.name, e.key))
    ]
    lines = ",\n".join("  " + json.dumps(p, ensure_ascii=False) for p in proofs)
    text = f'{{"format": {json.dumps(FORMAT)}, "proofs": [\n{lines}\n]}}\n'
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError:
        return False
    return True


class Keys:
    """The keys of a rule set's declarations."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self._texts: dict[str, str] = {}

    def of(self, declaration: Declaration) -> str:
        """A digest of the declaration and all that its proof rests on."""
        parts = [FORMAT, prover_version(), _text(declaration)]
        used = self._rests_on(declaration)
        parts.extend(self._known(f"op {n}", self.rules.ops[n]) for n in sorted(used) if n in self.rules.ops)
        parts.extend(self._known(f"fn {n}", self.rules.fns[n]) for n in sorted(used) if n in self.rules.fns)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]

    def _known(self, label: str, declaration: s.Declaration) -> str:
        return self._texts.setdefault(label, _text(declaration))

    def _rests_on(self, declaration: s.Declaration) -> set[str]:
        """The names of operators and functions in it, and in those, and so on."""
        found: set[str] = set()
        waiting: list[s.Declaration] = [declaration]
        while waiting:
            for name in _mentioned(waiting.pop()) - found:
                found.add(name)
                waiting.extend(d for d in (self.rules.ops.get(name), self.rules.fns.get(name)) if d is not None)
        return found


def _text(declaration: s.Declaration) -> str:
    """The tree as text, without what is only said to readers."""
    return repr(replace(declaration, doc=(), comments=()))


def _mentioned(declaration: s.Declaration) -> set[str]:
    found: set[str] = set()
    stack: list[Any] = [declaration]
    while stack:
        node = stack.pop()
        if isinstance(node, s.Apply):
            found.add(node.op)
        elif isinstance(node, s.Call):
            found.add(node.function)
        if isinstance(node, tuple):
            parts = cast(tuple[Any, ...], node)
            stack.extend(parts)
        elif isinstance(node, s.Tree):
            stack.extend(getattr(node, f) for f in node.__dataclass_fields__ if f != "span")
    return found


@lru_cache(maxsize=1)
def prover_version() -> str:
    """A digest of the prover's sources, and the solver's version."""
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{digest.hexdigest()} z3 {metadata.version('z3-solver')}"
