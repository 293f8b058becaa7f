// SPDX-License-Identifier: Apache-2.0
//
// How windows of one flow give up resolution.
#pragma once

#include <vector>

#include "pulse/window_series.hpp"

namespace pulse {

// Makes pieces of neighbours, the most alike first, as long as a piece costs at most `tolerance`: the squared
// error that it adds, in units of the flow's mean square per window, and more for windows that were empty.
// `windows` is sorted.
void merge_windows(std::vector<Window>& windows, double tolerance);

}  // namespace pulse
