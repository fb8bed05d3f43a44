#include "heddle/Support/Glob.h"

#include "heddle/Support/Printable.h"

#include <fmt/format.h>

using namespace heddle;

/// Where the set that begins at `pattern[open]` ('[') closes; npos if nowhere.
/// A ']' that comes first is a member.
static std::size_t closeOfSet(std::string_view pattern, std::size_t open) {
  std::size_t first = open + 1;
  if (first < pattern.size() && pattern[first] == '!')
    ++first;
  return pattern.find(']', first + 1);
}

/// `set` is what stands between the brackets.
static bool inSet(std::string_view set, char c) {
  bool negated = set.starts_with('!');
  if (negated)
    set.remove_prefix(1);
  bool found = false;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found |= set[i] <= c && c <= set[i + 2];
      i += 2;
    } else {
      found |= set[i] == c;
    }
  }
  return found != negated;
}

Result<Glob> Glob::parse(std::string pattern) {
  std::string_view text = pattern;
  if (text.empty())
    return Error{"found an empty pattern, expected a name or '*'"};
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '[')
      continue;
    std::size_t close = closeOfSet(text, i);
    if (close == text.npos)
      return Error{fmt::format(
          "pattern '{}': found '[' at character {}, expected a ']' after it",
          printable(pattern), i + 1)};
    for (std::size_t j = i + 1; j + 2 < close; ++j)
      if (text[j + 1] == '-' && text[j] > text[j + 2])
        return Error{fmt::format(
            "pattern '{}': found the range '{}', expected rising ends",
            printable(pattern), printable(text.substr(j, 3)))};
    i = close;
  }
  return Glob(std::move(pattern));
}

/// Whether the plain characters at the end of the pattern are those of the
/// name: most patterns of a plan begin with '*', and differ in their end.
static bool mayEndSo(std::string_view pattern, std::string_view name) {
  while (!pattern.empty() &&
         std::string_view("*?[]").find(pattern.back()) == pattern.npos) {
    if (name.empty() || name.back() != pattern.back())
      return false;
    pattern.remove_suffix(1);
    name.remove_suffix(1);
  }
  return true;
}

bool Glob::isMatch(std::string_view pattern, std::string_view name) {
  if (!mayEndSo(pattern, name))
    return false;
  constexpr std::size_t none = std::string_view::npos;
  // On a mismatch the latest '*' takes one character more; earlier ones never
  // need to.
  std::size_t p = 0, n = 0, star = none, starName = 0;
  while (n < name.size()) {
    std::size_t next = none; // of the pattern, if it takes name[n]
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        starName = n;
        continue;
      }
      if (pattern[p] == '[') {
        std::size_t close = closeOfSet(pattern, p);
        if (close == none)
          return false;
        if (inSet(pattern.substr(p + 1, close - p - 1), name[n]))
          next = close + 1;
      } else if (pattern[p] == '?' || pattern[p] == name[n]) {
        next = p + 1;
      }
    }
    if (next != none) {
      p = next;
      ++n;
    } else if (star != none) {
      p = star + 1;
      n = ++starName;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == none;
}
