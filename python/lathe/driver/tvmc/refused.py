"""Parts of tvmc that Lathe does not have."""

from __future__ import annotations

from typing import Any

from ... import error


def tune(tvmc_model: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    """Refused: there is nothing to tune."""
    raise error.UnsupportedError(
        "tvmc tune: Lathe chooses schedules by its own model of the machine, there is no tuner; compile without"
    )


def micro(*_args: Any, **_kwargs: Any) -> Any:
    """Refused: there are no projects for microcontrollers."""
    raise error.UnsupportedError(
        "tvmc micro: projects for microcontrollers are not made; "
        "export C source (target c, .c) and link it with liblathe_rt"
    )
