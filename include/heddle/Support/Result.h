//===- Result.h - A value or the sentence that says why not -----*- C++ -*-===//
//
// How heddle reports what a user can cause: no exceptions cross a library's
// edge, no assert fires on input. Standard library only.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPPORT_RESULT_H
#define HEDDLE_SUPPORT_RESULT_H

#include <string>
#include <utility>
#include <variant>

namespace heddle {

/// What was found, what was expected, where (file:line) and what to do; lower
/// case, no full stop. A tool prints it after "error: " and exits with 2.
struct Error {
  std::string message;
};

/// Either a T or an Error. Test it before use:
/// `auto config = readModelConfig(path); if (!config) return config.error();`
template <typename T>
class [[nodiscard]] Result {
public:
  Result(T value) : state(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state.index() == 0; }

  /// The value; only where the result holds one.
  T &operator*() { return std::get<0>(state); }
  const T &operator*() const { return std::get<0>(state); }
  T *operator->() { return &std::get<0>(state); }
  const T *operator->() const { return &std::get<0>(state); }

  /// The error; only where the result holds no value.
  const Error &error() const { return std::get<1>(state); }
  const std::string &message() const { return error().message; }

private:
  std::variant<T, Error> state;
};

/// Done, or an Error. `return {};` is success.
template <>
class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Error error) : failed(true), failure(std::move(error)) {}

  explicit operator bool() const { return !failed; }
  const Error &error() const { return failure; }
  const std::string &message() const { return failure.message; }

private:
  bool failed = false;
  Error failure;
};

} // namespace heddle

#endif
