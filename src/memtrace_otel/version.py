"""The package version, read by the build and stamped on every span scope."""

__version__ = "0.1.0"
