# SPDX-License-Identifier: Apache-2.0
"""The command line, for tests of ``pulse bench``."""

from tests.cli.conftest import pulse as pulse
