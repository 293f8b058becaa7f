// SPDX-License-Identifier: Apache-2.0
#include "check.hpp"

// usage: pulse_tests [part of a test name]
int main(int argc, char** argv) { return pulse::test::run_all(argc > 1 ? argv[1] : ""); }
