// SPDX-License-Identifier: Apache-2.0
//
// The whole test framework of the core: TEST registers a function, CHECK and
// CHECK_EQ report a failure with its place and go on, run_all() runs everything.
#pragma once

#include <iostream>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pulse::test {

struct Case {
  std::string_view name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registration {
  Registration(std::string_view name, void (*run)()) { cases().push_back({name, run}); }
};

template <typename T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::is_integral_v<T>) {
    out << +value;  // bytes as numbers
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "(a value that has no text form)";
  }
}

inline void fail(const char* file, int line, std::string_view expression) {
  ++failures();
  std::cout << file << ':' << line << ": failed: " << expression << '\n';
}

template <typename A, typename B>
void check_equal(const A& actual, const B& expected, const char* file, int line, std::string_view expression) {
  if (actual == expected) {
    return;
  }
  fail(file, line, expression);
  std::cout << "  actual:   ";
  print(std::cout, actual);
  std::cout << "\n  expected: ";
  print(std::cout, expected);
  std::cout << '\n';
}

// Runs the tests whose name contains `filter`; returns the exit status.
inline int run_all(std::string_view filter) {
  int ran = 0;
  for (const Case& test : cases()) {
    if (test.name.find(filter) == std::string_view::npos) {
      continue;
    }
    const int before = failures();
    test.run();
    ++ran;
    if (failures() != before) {
      std::cout << "FAILED " << test.name << '\n';
    }
  }
  std::cout << ran << " tests, " << failures() << " failed checks\n";
  return failures() == 0 && ran > 0 ? 0 : 1;
}

}  // namespace pulse::test

// clang-format off
#define PULSE_JOIN_(a, b) a##b
#define PULSE_JOIN(a, b) PULSE_JOIN_(a, b)
#define PULSE_TEST_(name, id)                                                        \
  static void PULSE_JOIN(test_, id)();                                               \
  static const ::pulse::test::Registration PULSE_JOIN(registration_, id){name, &PULSE_JOIN(test_, id)}; \
  static void PULSE_JOIN(test_, id)()
#define TEST(name) PULSE_TEST_(name, __LINE__)
#define CHECK(condition) \
  do { if (!(condition)) { ::pulse::test::fail(__FILE__, __LINE__, #condition); } } while (false)
#define CHECK_EQ(actual, expected) \
  ::pulse::test::check_equal((actual), (expected), __FILE__, __LINE__, #actual " == " #expected)
// clang-format on
