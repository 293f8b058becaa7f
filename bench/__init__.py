# SPDX-License-Identifier: Apache-2.0
"""Measurements of Pulse, each beside what it is compared with, in one run."""
