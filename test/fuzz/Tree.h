//===- Tree.h - Documents are changed as trees ------------------*- C++ -*-===//
//
// Changed bytes of a JSON or CBOR text are mostly no JSON or CBOR. Here a
// document is read, changed somewhere, and written again, so that what checks
// the values behind the syntax is tried.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TEST_FUZZ_TREE_H
#define HEDDLE_TEST_FUZZ_TREE_H

#include "heddle/Support/Document.h"
#include "test/fuzz/Fuzz.h"

namespace heddle::fuzz {

/// Changes up to four places: other scalars, keys taken away, given twice,
/// exchanged, parts copied from elsewhere.
void changeTree(DocumentValue &root, Random &random);

std::string jsonOf(const DocumentValue &value);
std::string cborOf(const DocumentValue &value);

/// Changes a text that is JSON and gives its tree, which stays until the next
/// call; null where the text is none.
const DocumentValue *changeJson(std::string &text, Random &random);

/// Target::mutate of texts of that kind.
bool mutateJson(std::string &text, Random &random);
bool mutateYaml(std::string &text, Random &random);
bool mutateCbor(std::string &bytes, Random &random);

} // namespace heddle::fuzz

#endif
