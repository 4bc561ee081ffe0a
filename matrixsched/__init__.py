"""Scheduled actions from the SQL database you already have."""

from importlib.metadata import version

__version__ = version("matrixsched")
