"""Compiling whole models, as the command line does it: lathe.driver.tvmc."""

from ..build_module import build, lower

__all__ = ["build", "lower"]
