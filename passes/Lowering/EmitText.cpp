//===- EmitText.cpp - names and literals of the emitted C++ ---------------===//

#include "passes/Lowering/EmitText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace heddle::lowering {

static const llvm::StringSet<> &reservedWords() {
  // Words of C++, and what step.cpp and kernels.h call themselves.
  static const llvm::StringSet<> words = {
      "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case",
      "catch", "char", "class", "const", "constexpr", "continue", "decltype",
      "default", "delete", "do", "double", "else", "enum", "explicit", "export",
      "extern", "false", "float", "for", "friend", "goto", "if", "inline",
      "int", "long", "mutable", "namespace", "new", "noexcept", "not",
      "nullptr", "operator", "or", "private", "protected", "public", "register",
      "requires", "return", "short", "signed", "sizeof", "static", "struct",
      "switch", "template", "this", "throw", "true", "try", "typedef",
      "typename", "union", "unsigned", "using", "virtual", "void", "volatile",
      "while", "xor",
      // ours
      "p", "at", "gemm", "quantize", "hadamard", "attention", "attentionGrad",
      "rope", "allToAll", "permute", "in", "inRow", "inColumn", "inScalar",
      "out", "outRow", "outColumn", "outScalar", "inout", "inoutRow",
      "inoutColumn", "inoutScalar", "gathered", "rowIndex", "columnIndex",
      "elementwise", "rowwise", "columnwise", "reduceAll", "segmentSort",
      "segmentSum", "kernels", "heddle", "math", "create", "main", "s", "t",
      "total", "column", "maximum", "minimum", "rounded", "bf16", "f16",
      "Program", "apply", "map", "init", "accumulate", "combine", "Value",
      "context", "rank", "status", "std", "linux", "unix", "numbers", "Numbers",
      "kNumbersKey", "kNumCounts", "kNumPlaces", "createEvents", "kSender",
      "kReceiver", "openChannel"};
  return words;
}

std::string Namer::give(StringRef wish) {
  std::string name = toIdentifier(wish);
  if (reservedWords().contains(name))
    name += '_';
  std::string unique = name;
  for (unsigned next = 2; !used.insert(unique).second; ++next)
    unique = name + "_" + std::to_string(next);
  return unique;
}

std::string toIdentifier(StringRef name) {
  std::string result;
  for (char c : name)
    result += llvm::isAlnum(c) || c == '_' ? c : '_';
  if (result.empty() || llvm::isDigit(result[0]))
    result.insert(0, "_");
  return result;
}

std::string upperCamel(StringRef name) {
  std::string result;
  bool upper = true;
  for (char c : name) {
    if (!llvm::isAlnum(c)) {
      upper = true;
      continue;
    }
    // Two numbers that a mark kept apart must not become one.
    if (upper && llvm::isDigit(c) && !result.empty() &&
        llvm::isDigit(result.back()))
      result += '_';
    result += upper ? llvm::toUpper(c) : c;
    upper = false;
  }
  return result;
}

StringRef elementType(Type type) {
  if (type.isF32())
    return "float";
  if (type.isBF16())
    return "bf16";
  if (type.isF16())
    return "f16";
  if (type.isF64())
    return "double";
  if (isa<Float8E4M3FNType>(type))
    return "f8e4m3";
  if (isa<Float8E5M2Type>(type))
    return "f8e5m2";
  if (isa<Float8E8M0FNUType>(type))
    return "f8e8m0";
  if (isa<Float4E2M1FNType>(type))
    return "f4e2m1";
  if (type.isInteger(8))
    return "int8_t";
  return type.isInteger(64) ? "int64_t" : "int32_t";
}

StringRef valueType(Type type) {
  if (type.isF64())
    return "double";
  if (isa<FloatType>(type))
    return "float";
  if (type.isIndex() || type.isInteger(64))
    return "int64_t";
  return type.isInteger(1) ? "bool" : "int32_t";
}

StringRef dtypeName(Type type) {
  if (type.isF32())
    return "HEDDLE_RT_F32";
  if (type.isBF16())
    return "HEDDLE_RT_BF16";
  if (type.isF16())
    return "HEDDLE_RT_F16";
  if (type.isF64())
    return "HEDDLE_RT_F64";
  if (isa<Float8E4M3FNType>(type))
    return "HEDDLE_RT_F8E4M3";
  if (isa<Float8E5M2Type>(type))
    return "HEDDLE_RT_F8E5M2";
  if (isa<Float8E8M0FNUType>(type))
    return "HEDDLE_RT_F8E8M0";
  if (isa<Float4E2M1FNType>(type))
    return "HEDDLE_RT_F4E2M1";
  return type.isInteger(64) ? "HEDDLE_RT_I64" : "HEDDLE_RT_I32";
}

std::string floatLiteral(const APFloat &value) {
  bool isDouble = &value.getSemantics() == &APFloat::IEEEdouble();
  if (value.isNaN())
    return isDouble ? "__builtin_nan(\"\")" : "__builtin_nanf(\"\")";
  if (value.isInfinity())
    return std::string(value.isNegative() ? "-" : "") +
           (isDouble ? "__builtin_inf()" : "__builtin_inff()");
  SmallString<32> text;
  // 0 digits: as few as tell the number from its neighbours.
  value.toString(text, 0, /*FormatMaxPadding=*/5);
  if (!StringRef(text).contains_insensitive('e') &&
      !StringRef(text).contains('.'))
    text += ".0";
  return (text + (isDouble ? "" : "f")).str();
}

std::string stringLiteral(StringRef text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += llvm::isPrint(c) ? c : ' ';
  }
  return result + '"';
}

std::string wrap(StringRef text, unsigned indent) {
  constexpr size_t width = 120;
  std::string result(indent, ' ');
  size_t column = indent, begin = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    quoted ^= text[i] == '"' && (i == 0 || text[i - 1] != '\\');
    bool ends = i + 1 == text.size() ||
                (!quoted && text[i] == ',' && text[i + 1] == ' ');
    if (!ends)
      continue;
    StringRef piece = text.slice(begin, i + 1).ltrim();
    if (begin != 0 && column + 1 + piece.size() > width) {
      result += "\n" + std::string(indent + 4, ' ');
      column = indent + 4;
    } else if (begin != 0) {
      result += ' ';
      ++column;
    }
    result += piece;
    column += piece.size();
    begin = i + 1;
  }
  return result;
}

static void collectWords(Location location,
                         llvm::SmallSetVector<StringRef, 4> &words) {
  if (auto name = dyn_cast<NameLoc>(location)) {
    words.insert(name.getName().getValue());
    collectWords(name.getChildLoc(), words);
  } else if (auto fused = dyn_cast<FusedLoc>(location)) {
    for (Location part : fused.getLocations())
      collectWords(part, words);
    if (auto cause = dyn_cast_or_null<StringAttr>(fused.getMetadata()))
      words.insert(cause.getValue());
  } else if (auto call = dyn_cast<CallSiteLoc>(location)) {
    collectWords(call.getCallee(), words);
  }
}

std::string locationWords(Location location) {
  llvm::SmallSetVector<StringRef, 4> words;
  collectWords(location, words);
  std::string joined = llvm::join(words, "; ");
  llvm::replace(joined, '\n', ' ');
  return joined;
}

static void collectFunctions(rt::ProgramOp program, rt::FuncOp func,
                             llvm::SetVector<Operation *> &found) {
  if (found.contains(func))
    return;
  func.getBody().walk([&](rt::CallOp call) {
    collectFunctions(program,
                     program.lookupSymbol<rt::FuncOp>(call.getCallee()), found);
  });
  found.insert(func);
}

SmallVector<rt::FuncOp> reachableFunctions(rt::ProgramOp program) {
  llvm::SetVector<Operation *> found;
  collectFunctions(program,
                   program.lookupSymbol<rt::FuncOp>(program.getEntry()), found);
  return llvm::map_to_vector(
      found, [](Operation *op) { return cast<rt::FuncOp>(op); });
}

bool queuesAlikeInStage(rt::ProgramOp program, StringRef function) {
  llvm::SetVector<Operation *> found;
  collectFunctions(program, program.lookupSymbol<rt::FuncOp>(function), found);
  auto isOverStages = [&](Attribute axis) {
    StringRef name = cast<StringAttr>(axis).getValue();
    return name == program.getStages() ||
           program.getMirroredAxis(name) == program.getStages();
  };
  return llvm::none_of(found, [&](Operation *func) {
    return func
        ->walk([&](Operation *op) {
          auto axes = op->getAttrOfType<ArrayAttr>("axes");
          return axes && !isa<rt::RankIndexOp>(op) &&
                         llvm::any_of(axes, isOverStages)
                     ? WalkResult::interrupt()
                     : WalkResult::advance();
        })
        .wasInterrupted();
  });
}

SmallVector<rt::KernelOp> launchedKernels(rt::ProgramOp program) {
  llvm::StringSet<> launched;
  for (rt::FuncOp func : reachableFunctions(program))
    func.getBody().walk([&](rt::KernelLaunchOp launch) {
      launched.insert(launch.getKernel());
    });
  SmallVector<rt::KernelOp> kernels;
  for (auto kernel : program.getOps<rt::KernelOp>())
    if (launched.contains(kernel.getSymName()))
      kernels.push_back(kernel);
  return kernels;
}

std::string functorName(rt::KernelOp kernel) {
  // Symbols are unique, but not what camel case makes of them.
  Namer namer;
  std::string name;
  auto program = kernel->getParentOfType<rt::ProgramOp>();
  for (auto other : program.getOps<rt::KernelOp>()) {
    name = namer.give(upperCamel(other.getSymName()));
    if (other == kernel)
      break;
  }
  return name;
}

} // namespace heddle::lowering
