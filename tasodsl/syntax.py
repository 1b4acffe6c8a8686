"""The syntax tree of `.taso`: immutable, and equal when the meaning of the text is equal (spans are not compared).

Three small languages live in it. *Expressions* compute integers, reals, booleans and lists at compile time, and
entries of
tensors in definitions (`Expr`). *Shapes* are lists of dimension expressions with packs (`TensorType`). *Terms* are
operator
applications in rules and axioms (`Term`). Declarations hold clauses in the order of the text, so that a printer can
give
the text back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal as Lit

from tasodsl.source import NOWHERE, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    span: Span = field(default=NOWHERE, compare=False, repr=False)


# --- expressions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Int(Tree):
    value: int


@dataclass(frozen=True, slots=True)
class Real(Tree):
    """A decimal literal; `text` is kept so that it prints as written, `value` is exact."""

    value: Fraction
    text: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Str(Tree):
    value: str


@dataclass(frozen=True, slots=True)
class Bool(Tree):
    value: bool


@dataclass(frozen=True, slots=True)
class Name(Tree):
    id: str


@dataclass(frozen=True, slots=True)
class Unary(Tree):
    """`-x` or `not x`."""

    op: Lit["-", "not"]
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Tree):
    """`+ - * / // % **`, `and`, `or`, `in`. `/` is for reals, `//` and `%` for integers with a positive divisor."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compare(Tree):
    """A chain `a < b <= c`: the conjunction of its links. Links are `== != < <= > >=`; lists compare with `==` and
    `!=`."""

    first: Expr
    rest: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class IfExpr(Tree):
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class Call(Tree):
    """A call of a built-in or declared function (`max`, `exp`, `rank`, `broadcast`, a `fn`)."""

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Splice(Tree):
    """`..e` inside a list, an index or a shape: the elements of the list `e`, one after another."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Index(Tree):
    """`base[i, j]`: an entry of a tensor or an element of a list.

    `default` is set for a read with `?e`: outside the bounds, or where an optional operand is absent, the value is `e`.
    """

    base: Expr
    indices: tuple[Expr | Splice, ...]
    default: Expr | None = None


@dataclass(frozen=True, slots=True)
class Slice(Tree):
    """`L[a:b]` of a list; bounds within 0 and its length."""

    base: Expr
    low: Expr | None
    high: Expr | None


@dataclass(frozen=True, slots=True)
class ListExpr(Tree):
    items: tuple[Expr | Splice, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Tree):
    """`[body for x in L if c]` or `[body for k < n if c]`."""

    body: Expr
    variable: str
    relation: Lit["in", "<"]
    domain: Expr
    condition: Expr | None = None


@dataclass(frozen=True, slots=True)
class Binder(Tree):
    """`p < k` (0 <= p < k), or, for a pack, `..r < L` (one index below each element of the list `L`)."""

    name: str
    bound: Expr
    pack: bool = False


@dataclass(frozen=True, slots=True)
class Reduce(Tree):
    """`sum[p < k if c] body`. `sum` over an empty domain is 0, `all` true, `any` false; `max` and `min` need one
    point."""

    kind: Lit["sum", "max", "min", "all", "any"]
    binders: tuple[Binder, ...]
    condition: Expr | None
    body: Expr


Expr = (
    Int
    | Real
    | Str
    | Bool
    | Name
    | Unary
    | Binary
    | Compare
    | IfExpr
    | Call
    | Index
    | Slice
    | ListExpr
    | Comprehension
    | Reduce
)


# --- types -------------------------------------------------------------------------------------------------------

DtypeClass = Lit["float", "half", "int", "bool", "any"]


@dataclass(frozen=True, slots=True)
class PerOperand(Tree):
    """`n[]` in the shape of a variadic operand: each operand has its own size, and `n` is the list of them."""

    name: str


@dataclass(frozen=True, slots=True)
class TensorType(Tree):
    """`float[..S, m, k]`. No class written means `float` (float32 and float64)."""

    dims: tuple[Expr | Splice | PerOperand, ...]
    dtype: DtypeClass | None = None


@dataclass(frozen=True, slots=True)
class AttrType(Tree):
    """`int`, `int[2]`, `int[]`, `real`, `real[2]`, `bool` (an ONNX int that is 0 or 1), `axis`, `axes`, `perm`,
    `dtype`, or a choice of strings.

    `axis`, `axes` (strictly increasing) and `perm` are *structural*: a proof goes through their values case by case.
    """

    kind: Lit["int", "real", "bool", "axis", "axes", "perm", "dtype", "choice"]
    length: Expr | Lit["any"] | None = None
    choices: tuple[str, ...] = ()


# --- terms -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Var(Tree):
    """A declared operand or a bound value. `optional` for `b?`: passed on whether present or absent."""

    name: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Literal(Tree):
    """A scalar constant of rank 0: matches one-element constants of that value, takes its neighbour's dtype."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Absent(Tree):
    """`absent`: a missing optional operand."""


@dataclass(frozen=True, slots=True)
class Wildcard(Tree):
    """`_`: any value, never the same as another `_`."""


@dataclass(frozen=True, slots=True)
class Variadic(Tree):
    """`..xs`: all the operands of a variadic declaration."""

    name: str


@dataclass(frozen=True, slots=True)
class VariadicMap(Tree):
    """`..[Relu(x) for x in xs]`: a term for each operand of `xs`."""

    term: Term
    variable: str
    source: str


@dataclass(frozen=True, slots=True)
class AttrArg(Tree):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Apply(Tree):
    """`Conv[pads=p, ..a](x, k)`; `rest` is the name after `..`, or None when every attribute not written has its
    default."""

    op: str
    attrs: tuple[AttrArg, ...]
    rest: str | None
    args: tuple[Term, ...]


Term = Apply | Var | Literal | Absent | Wildcard | Variadic | VariadicMap


# --- clauses and declarations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttrDecl(Tree):
    name: str
    type: AttrType
    default: Expr | None


@dataclass(frozen=True, slots=True)
class Require(Tree):
    """What ONNX demands of a call of this operator: a hypothesis where matched, a goal where rewritten to."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class LetScalar(Tree):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class LetTensor(Tree):
    """`let t[i < n, ..j < S] = body`: a tensor known at compile time, made of constants."""

    name: str
    binders: tuple[Binder, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Def(Tree):
    """`def Y[..b, i, j] = body`; index names are bound here. `operand` is set for a variadic result: `def
    Y[k][...]`."""

    result: str
    operand: str | None
    indices: tuple[Name | Splice, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Prop(Tree):
    """`prop commutative`."""

    name: str


@dataclass(frozen=True, slots=True)
class Operand(Tree):
    """An operand or result of an operator, or a variable of a rule's or axiom's `for`.

    `value` is set for `const z: [..T] = e`: every entry is `e`; a fresh name as `e` binds that number.
    """

    name: str
    type: TensorType
    const: bool = False
    optional: bool = False
    variadic: bool = False
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Bind(Tree):
    """`y1, y2 = Split(...)`; `_` for a result that is not used."""

    names: tuple[str, ...]
    term: Term


@dataclass(frozen=True, slots=True)
class Where(Tree):
    condition: Expr


@dataclass(frozen=True, slots=True)
class Example(Tree):
    """`example m=5, k=3` (must match, both sides equal) or `reject ...` (must not match)."""

    kind: Lit["example", "reject"]
    bindings: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Unproved(Tree):
    reason: str


@dataclass(frozen=True, slots=True)
class Meta(Tree):
    entries: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Trivia:
    """Comments for the printer: lines before a clause or declaration, and one after it on its last line."""

    before: tuple[str, ...] = ()
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Declaration(Tree):
    name: str
    doc: tuple[str, ...] = field(default=(), kw_only=True)
    """The `///` lines, without the slashes and one leading blank."""
    comments: tuple[tuple[int, Trivia], ...] = field(default=(), kw_only=True)
    """Comments by clause number, counted as printed (`tasodsl.parts`): -1 is the declaration's head."""


@dataclass(frozen=True, slots=True)
class FnDecl(Declaration):
    params: tuple[str, ...]
    body: Expr


OpClause = AttrDecl | Require | LetScalar | Def | Prop


@dataclass(frozen=True, slots=True)
class OpDecl(Declaration):
    """An operator: `op Name(operands) -> results [since N]` and its clauses."""

    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    since: int | None
    clauses: tuple[OpClause, ...]

    @property
    def attrs(self) -> tuple[AttrDecl, ...]:
        return tuple(c for c in self.clauses if isinstance(c, AttrDecl))

    @property
    def requires(self) -> tuple[Require, ...]:
        return tuple(c for c in self.clauses if isinstance(c, Require))

    @property
    def defs(self) -> tuple[Def, ...]:
        return tuple(c for c in self.clauses if isinstance(c, Def))

    @property
    def commutative(self) -> bool:
        return any(isinstance(c, Prop) and c.name == "commutative" for c in self.clauses)


AxiomClause = Where | LetScalar


@dataclass(frozen=True, slots=True)
class AxiomDecl(Declaration):
    """`left == right` for all operands for which the left side is well shaped."""

    variables: tuple[Operand, ...]
    clauses: tuple[AxiomClause, ...]
    left: Term
    right: Term


RuleClause = Where | LetScalar | LetTensor | Example | Unproved | Meta


@dataclass(frozen=True, slots=True)
class RuleDecl(Declaration):
    """A directed substitution. `both` for `birewrite`."""

    variables: tuple[Operand, ...]
    match: tuple[Bind, ...]
    rewrite: tuple[Bind, ...]
    clauses: tuple[RuleClause, ...]
    both: bool = False

    @property
    def wheres(self) -> tuple[Where, ...]:
        return tuple(c for c in self.clauses if isinstance(c, Where))

    @property
    def lets(self) -> tuple[LetScalar | LetTensor, ...]:
        return tuple(c for c in self.clauses if isinstance(c, LetScalar | LetTensor))

    @property
    def examples(self) -> tuple[Example, ...]:
        return tuple(c for c in self.clauses if isinstance(c, Example))

    @property
    def unproved(self) -> str | None:
        return next((c.reason for c in self.clauses if isinstance(c, Unproved)), None)


AnyDecl = FnDecl | OpDecl | AxiomDecl | RuleDecl


@dataclass(frozen=True, slots=True)
class Module(Tree):
    """One file."""

    declarations: tuple[AnyDecl, ...]
    trailing: tuple[str, ...] = ()
    """Comments after the last declaration."""
