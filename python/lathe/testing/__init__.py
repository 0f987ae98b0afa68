"""Helpers for tests, under TVM's names, so that its users' own tests run.

What builds on pytest needs that package; assert_allclose and enabled_targets do not.  `lathe.testing.plugin` is the
pytest plugin that gives tests their `target` and `dev`."""

from .compare import CompareBeforeAfter
from .fixtures import fixture, parameter, parameters
from .program import main
from .targets import (
    DEFAULT_TEST_TARGETS,
    FEATURES,
    Feature,
    device_enabled,
    enabled_targets,
    exclude_targets,
    known_failing_targets,
    parametrize_targets,
    requires_cuda_compute_version,
    requires_nvcc_version,
    requires_package,
    skip_if_32bit,
    skip_if_wheel_test,
    uses_gpu,
)
from .utils import (
    assert_allclose,
    assert_prim_expr_equal,
    check_bool_expr_is_true,
    check_numerical_grads,
    identity_after,
    install_request_hook,
    object_use_count,
    slow,
    terminate_self,
)

__all__ = [
    "CompareBeforeAfter",
    "DEFAULT_TEST_TARGETS",
    "FEATURES",
    "Feature",
    "assert_allclose",
    "assert_prim_expr_equal",
    "check_bool_expr_is_true",
    "check_numerical_grads",
    "device_enabled",
    "enabled_targets",
    "exclude_targets",
    "fixture",
    "identity_after",
    "install_request_hook",
    "known_failing_targets",
    "main",
    "object_use_count",
    "parameter",
    "parameters",
    "parametrize_targets",
    "requires_package",
    "requires_cuda_compute_version",
    "requires_nvcc_version",
    "skip_if_32bit",
    "skip_if_wheel_test",
    "slow",
    "terminate_self",
    "uses_gpu",
]


def __getattr__(name: str) -> Feature:
    """requires_cuda and the like, from the table of features."""
    feature = FEATURES.get(name[len("requires_") :]) if name.startswith("requires_") else None
    if feature is None:
        raise AttributeError(f"module 'lathe.testing' has no attribute '{name}'")
    return feature
