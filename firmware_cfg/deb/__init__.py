# SPDX-License-Identifier: Apache-2.0
"""The Debian package of the agent."""
