"""Parts of tvmc that Lathe does not have."""

from __future__ import annotations

from typing import Any

from ... import error


def micro(*_args: Any, **_kwargs: Any) -> Any:
    """Refused: there are no projects for microcontrollers."""
    raise error.UnsupportedError(
        "tvmc micro: projects for microcontrollers are not made; "
        "export C source (target c, .c) and link it with liblathe_rt"
    )
