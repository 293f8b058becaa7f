# SPDX-License-Identifier: Apache-2.0
"""Compiled part of Pulse: capture reader, RoCEv2 parser and flow meter."""

from pulse_native._core import __version__, record_dtypes

__all__ = ["__version__", "record_dtypes"]
