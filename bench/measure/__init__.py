# SPDX-License-Identifier: Apache-2.0
"""What the measurement core costs, and what it keeps: `pulse bench measure`."""
