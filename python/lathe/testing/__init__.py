"""Helpers for tests, under TVM's names, so that its users' own tests run.

What builds on pytest needs that package; assert_allclose and enabled_targets do not.  `lathe.testing.plugin` is the pytest
plugin that gives tests their `target` and `dev`."""

from .compare import CompareBeforeAfter
from .fixtures import fixture, main, parameter, parameters
from .targets import (
    DEFAULT_TEST_TARGETS,
    FEATURES,
    Feature,
    device_enabled,
    enabled_targets,
    exclude_targets,
    known_failing_targets,
    parametrize_targets,
    requires_package,
    uses_gpu,
)
from .utils import assert_allclose, check_bool_expr_is_true, check_numerical_grads, identity_after, install_request_hook, object_use_count, slow, terminate_self

globals().update({f"requires_{name}": feature for name, feature in FEATURES.items()})

__all__ = [n for n in globals() if not n.startswith("_")]
