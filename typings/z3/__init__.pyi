# z3-solver ships no types: everything it has is taken as it is.
from typing import Any

def __getattr__(name: str) -> Any: ...
