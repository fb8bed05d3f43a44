//===- Kernels.cpp - groups of ops as one launch --------------------------===//
//
// Neighbouring elementwise and row-wise ops over the same rows become one
// kernel, so that what one makes and the next reads stays in registers.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/KernelBodies.h"
#include "passes/Lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using rt::OperandKind;
using rt::OperandMode;

bool lowering::isKernelOp(Operation *op) {
  return getKernelForm(op).has_value() || isa<transformer::SumLeadingOp>(op);
}

//===----------------------------------------------------------------------===//
// Which ops share a kernel
//===----------------------------------------------------------------------===//

namespace {
/// Rows and columns that the ops of a kernel agree on.
struct Space {
  int64_t rows = 1, columns = 1;
  bool flexible = true;
  int64_t elements() const { return rows * columns; }
};
} // namespace

static int64_t elementsOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

/// What a value is in `space` to a flexible op, if it is anything.
static std::optional<Role> flexibleRole(Value value, const Space &space) {
  int64_t elements = elementsOf(value);
  if (elements == space.elements())
    return Role::Full;
  if (elements == 1 && cast<RankedTensorType>(value.getType()).getRank() == 0)
    return Role::Scalar; // a number, also where there is one row
  if (elements == space.rows)
    return Role::PerRow;
  if (elements == 1)
    return Role::Scalar;
  return std::nullopt;
}

/// The space after `form` joins it, or nothing.
static std::optional<Space> joinSpaces(const Space &space,
                                       const KernelForm &form, Operation *op) {
  if (form.flexible) {
    for (ValueRange values :
         {ValueRange(op->getOperands()), ValueRange(op->getResults())})
      for (Value value : values)
        if (!flexibleRole(value, space))
          return std::nullopt;
    return space;
  }
  if (space.flexible ? space.elements() == form.rows * form.columns
                     : space.rows == form.rows && space.columns == form.columns)
    return Space{form.rows, form.columns, false};
  return std::nullopt;
}

static std::optional<Space> spaceOf(ArrayRef<Operation *> ops) {
  std::optional<KernelForm> first = getKernelForm(ops.front());
  if (!first)
    return std::nullopt;
  std::optional<Space> space =
      Space{first->rows, first->columns, first->flexible};
  for (Operation *op : ops.drop_front())
    if (std::optional<KernelForm> form = getKernelForm(op); space && form)
      space = joinSpaces(*space, *form, op);
  return space;
}

/// Whether an op must know the numbers of its columns.
static bool needsColumn(Operation *op) {
  using namespace transformer;
  return isa<PickOp, LossGradOp, DropoutOp, DropoutWithMaskOp, DelayScalesOp>(
             op) ||
         (isa<RowMaxOp, RowSumExpOp>(op) && hasPaddedColumns(op));
}

/// Whether the rows of two ops are the same heads of the whole model. Of
/// probabilities only the number among those of a KV head counts.
static bool haveSameHeads(Operation *one, Operation *other) {
  using transformer::ProbabilitiesOp;
  return dist::getShard(one, "r") == dist::getShard(other, "r") &&
         (isa<ProbabilitiesOp>(one) || isa<ProbabilitiesOp>(other) ||
          dist::getShard(one, "g") == dist::getShard(other, "g"));
}

/// Whether an op has a launch of sums along columns, which reads its operands
/// where they are stored.
static bool readsStored(Operation *op) {
  return isa<transformer::RmsNormGradOp, transformer::LayerNormGradOp>(op);
}

/// Whether the op behind `op` alone reads its results, and also those of
/// `open`: one kernel can do all and stores none of both, though `op` itself
/// reads nothing of `open`.
static bool leadsBack(ArrayRef<Operation *> open, Operation *op) {
  Operation *next = op->getNextNode();
  if (!next || !isKernelOp(next) || readsStored(next) || op->use_empty() ||
      !llvm::all_of(op->getUsers(),
                    [&](Operation *user) { return user == next; }))
    return false;
  bool readsOpen = llvm::any_of(next->getOperands(), [&](Value operand) {
    return llvm::is_contained(open, operand.getDefiningOp());
  });
  SmallVector<Operation *> all(open);
  all.push_back(op);
  return readsOpen && canJoin(all, next);
}

bool lowering::canJoin(ArrayRef<Operation *> open, Operation *op) {
  std::optional<KernelForm> form = getKernelForm(op);
  if (!form || form->reducesAll || getKernelForm(open.front())->reducesAll)
    return false;
  bool uses = false;
  for (Value operand : op->getOperands()) {
    Operation *maker = operand.getDefiningOp();
    if (!maker || !llvm::is_contained(open, maker))
      continue;
    uses = true;
    // Sums along columns come from a launch of their own, after this one.
    if (cast<OpResult>(operand).getResultNumber() >=
        getKernelForm(maker)->results.size())
      return false;
  }
  for (Operation *other : open)
    if ((needsColumn(op) && needsColumn(other) &&
         getColumnShard(other) != getColumnShard(op)) ||
        (needsHeads(op) && needsHeads(other) && !haveSameHeads(op, other)))
      return false;
  std::optional<Space> space = spaceOf(open);
  return space && joinSpaces(*space, *form, op) &&
         (uses || leadsBack(open, op));
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// A kernel as text in which names of operands do not count.
static std::string textOf(rt::KernelOp kernel) {
  ArrayAttr named = kernel.getKernelOperandsAttr();
  SmallVector<Attribute> numbered;
  for (auto [i, operand] : llvm::enumerate(named.getAsRange<rt::OperandAttr>()))
    numbered.push_back(rt::OperandAttr::get(
        kernel.getContext(), "v" + std::to_string(i), operand.getMode(),
        operand.getKind(), operand.getType()));
  kernel.setKernelOperandsAttr(ArrayAttr::get(kernel.getContext(), numbered));
  std::string text;
  llvm::raw_string_ostream os(text);
  kernel->print(os, OpPrintingFlags().useLocalScope());
  kernel.setKernelOperandsAttr(named);
  return text;
}

/// Gives a kernel its name, or finds the one with the same text and erases
/// this.
static std::string nameKernel(Program &program, rt::KernelOp kernel,
                              StringRef name) {
  std::string text = textOf(kernel);
  if (auto known = program.kernels.find(text); known != program.kernels.end()) {
    kernel->erase();
    return known->second;
  }
  unsigned number = program.kernelNames[name]++;
  std::string chosen =
      number ? (name + "_" + llvm::Twine(number + 1)).str() : name.str();
  program.kernels[text] = chosen;
  kernel.setSymName(chosen);
  return chosen;
}

static Value makeWorkspace(BlockLowering &lowering, rt::KernelOp kernel,
                           int64_t rows, int64_t columns) {
  int64_t bytes = rt::getWorkspaceBytes(kernel, rows, columns);
  if (!bytes)
    return {};
  OpBuilder &builder = lowering.getBuilder();
  bool alongColumns = kernel.getSkeleton() == rt::Skeleton::columnwise;
  Type type =
      alongColumns ? Type(builder.getF32Type()) : Type(builder.getI64Type());
  int64_t elements = llvm::divideCeil(bytes, alongColumns ? 4 : 8);
  return lowering.makeBuffer("sums", "partial sums of one launch",
                             RankedTensorType::get({elements}, type),
                             "workspace");
}

void lowering::launchRaw(
    BlockLowering &lowering, const KernelLaunch &launch,
    llvm::function_ref<SmallVector<Value>(BodyBuilder &, rt::KernelOp)> build) {
  Program &program = lowering.getProgram();
  OpBuilder atProgram = OpBuilder::atBlockEnd(&program.op.getBody().front());
  auto kernel = rt::KernelOp::create(atProgram, program.op.getLoc(), "kernel",
                                     launch.skeleton, launch.operands);
  BodyBuilder body{OpBuilder::atBlockEnd(&kernel.getBody().front()),
                   program.op.getLoc(), launch.columns,
                   launch.rows * launch.columns};
  SmallVector<Value> results = build(body, kernel);
  rt::YieldOp::create(body.builder, body.location, results);
  std::string symbol = nameKernel(program, kernel, launch.name);
  kernel = cast<rt::KernelOp>(SymbolTable::lookupSymbolIn(program.op, symbol));
  OpBuilder &builder = lowering.getBuilder();
  Value workspace =
      makeWorkspace(lowering, kernel, launch.rows, launch.columns);
  rt::KernelLaunchOp::create(builder, launch.location, launch.label, symbol,
                             launch.rows, launch.columns, launch.arguments,
                             workspace, builder.getArrayAttr({}),
                             lowering.stream);
}

//===----------------------------------------------------------------------===//
// One kernel
//===----------------------------------------------------------------------===//

namespace heddle::lowering {

/// Collects the operands of a kernel, builds its body and launches it.
class KernelGroup {
public:
  KernelGroup(BlockLowering &lowering, Space space)
      : lowering(lowering), space(space) {}

  void addInput(Value value, Role role);
  void addOutput(Value value, Role role);
  /// Whether some op must know the numbers of its columns.
  void needColumns(dist::ShardAttr shard) {
    columns = true;
    this->shard = shard;
  }
  /// The op whose heads some op must know.
  void needHeads(Operation *op) {
    if (!heads || isa<transformer::ProbabilitiesOp>(heads))
      heads = op;
  }

  /// While a body is built: the elements of operands that are full per rows.
  DenseMap<Value, Value> fullPerRows;

  using Body =
      llvm::function_ref<void(BodyBuilder &, DenseMap<Value, Value> &scalars)>;
  LogicalResult launch(StringRef name, rt::Skeleton skeleton, Location location,
                       StringRef label, Body body);

private:
  struct Operand {
    std::string name;
    OperandMode mode;
    Role role;
    Value buffer, input, output;
    bool adds = false; // the output is added to what is there
  };

  std::string freshName(Value value);
  Value argumentOf(const Operand &operand);
  void addHeads(KernelLaunch &kernel, Location location);

  BlockLowering &lowering;
  Space space;
  SmallVector<Operand> operands;
  llvm::StringMap<unsigned> names;
  dist::ShardAttr shard;
  bool columns = false;
  Operation *heads = nullptr;
};

} // namespace heddle::lowering

std::string KernelGroup::freshName(Value value) {
  std::string name = identifier(transformer::getName(value));
  if (name.empty())
    name = "v";
  unsigned number = names[name]++;
  return number ? name + "_" + std::to_string(number + 1) : name;
}

void KernelGroup::addInput(Value value, Role role) {
  for (Operand &operand : operands)
    if (operand.input == value && operand.role == role)
      return;
  operands.push_back({freshName(value), OperandMode::read, role,
                      lowering.placeOf(value), value, Value()});
}

void KernelGroup::addOutput(Value value, Role role) {
  if (Value sum = lowering.sums.lookup(value)) {
    operands.push_back({freshName(value), OperandMode::read_write, role, sum,
                        Value(), value, true});
    return;
  }
  Value buffer = lowering.placeOf(value);
  for (Operand &operand : operands) // in place
    if (operand.buffer == buffer && operand.role == role && !operand.output) {
      operand.mode = OperandMode::read_write;
      operand.output = value;
      return;
    }
  operands.push_back(
      {freshName(value), OperandMode::write, role, buffer, Value(), value});
}

static OperandKind kindOf(Role role) {
  switch (role) {
  case Role::Full:
  case Role::FullPerRows:
    return OperandKind::full;
  case Role::PerRow:
  case Role::PerRows:
    return OperandKind::per_row;
  case Role::PerColumn:
    return OperandKind::per_column;
  case Role::Scalar:
    return OperandKind::scalar;
  }
  llvm_unreachable("all roles are handled");
}

/// A buffer as an operand of its role: rows that share one have no distance.
Value KernelGroup::argumentOf(const Operand &operand) {
  if (operand.role != Role::PerRows && operand.role != Role::FullPerRows)
    return operand.buffer;
  int64_t elements = elementsOf(operand.input);
  int64_t width = operand.role == Role::PerRows ? 1 : space.columns;
  int64_t held = elements / width;
  SmallVector<int64_t> shape = {held, space.rows / held}, strides = {width, 0};
  if (operand.role == Role::FullPerRows) {
    shape.push_back(width);
    strides.push_back(1);
  }
  return lowering.viewAs(operand.buffer, shape, strides);
}

/// Numbers that tell which head of the whole model a row is.
void KernelGroup::addHeads(KernelLaunch &kernel, Location location) {
  auto add = [&](StringRef name, OperandKind kind, Value number) {
    kernel.operands.push_back(
        rt::OperandAttr::get(number.getContext(), name, OperandMode::read, kind,
                             lowering.getBuilder().getI32Type()));
    kernel.arguments.push_back(number);
  };
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(heads->getOperand(0).getType()).getShape();
  add("row", OperandKind::row_index, lowering.beginOfShard(location, {}, 0));
  add("first_group", OperandKind::integer,
      lowering.beginOfShard(location, dist::getShard(heads, "g"), shape[2]));
  add("first_head", OperandKind::integer,
      lowering.beginOfShard(location, dist::getShard(heads, "r"), shape[3]));
}

LogicalResult KernelGroup::launch(StringRef name, rt::Skeleton skeleton,
                                  Location location, StringRef label,
                                  Body build) {
  OpBuilder &builder = lowering.getBuilder();
  MLIRContext *context = builder.getContext();
  KernelLaunch kernel{name,        skeleton,   location,
                      label.str(), space.rows, space.columns};
  for (Operand &operand : operands) {
    kernel.operands.push_back(rt::OperandAttr::get(
        context, operand.name, operand.mode, kindOf(operand.role),
        cast<rt::BufType>(operand.buffer.getType()).getElementType()));
    kernel.arguments.push_back(argumentOf(operand));
  }
  if (columns) {
    kernel.operands.push_back(
        rt::OperandAttr::get(context, "column", OperandMode::read,
                             OperandKind::column_index, builder.getI32Type()));
    kernel.arguments.push_back(
        lowering.beginOfShard(location, shard, space.columns));
  }
  const size_t numbers = kernel.operands.size();
  if (heads)
    addHeads(kernel, location);
  launchRaw(lowering, kernel, [&](BodyBuilder &body, rt::KernelOp op) {
    DenseMap<Value, Value> scalars;
    for (auto [i, operand] : llvm::enumerate(operands))
      if (operand.input)
        (operand.role == Role::FullPerRows ? fullPerRows
                                           : scalars)[operand.input] =
            op.getArgumentOf(i);
    if (columns)
      body.column = op.getArgumentOf(operands.size());
    if (heads) {
      body.row = op.getArgumentOf(numbers);
      body.firstGroup = op.getArgumentOf(numbers + 1);
      body.firstHead = op.getArgumentOf(numbers + 2);
    }
    build(body, scalars);
    SmallVector<Value> results;
    for (auto [i, operand] : llvm::enumerate(operands)) {
      if (!operand.output)
        continue;
      Value result = scalars[operand.output];
      if (operand.adds)
        result = arith::AddFOp::create(body.builder, body.location,
                                       op.getArgumentOf(i), result);
      results.push_back(result);
    }
    return results;
  });
  return success();
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

static StringRef mnemonicOf(Operation *op) {
  return op->getName().stripDialect();
}

static std::string nameOf(ArrayRef<Operation *> ops) {
  std::string name;
  for (Operation *op : ops) {
    if (!name.empty())
      name += "_";
    name += mnemonicOf(op).str();
    if (auto kind = op->getAttrOfType<transformer::ActivationAttr>("kind"))
      name += "_" + transformer::stringifyActivation(kind.getValue()).str();
  }
  return name;
}

static Role roleOf(const KernelForm &form, Value value, Role own,
                   const Space &space) {
  return form.flexible ? flexibleRole(value, space).value_or(own) : own;
}

/// A number as its value is stored, for the ops behind it in the same kernel:
/// what is fused must not show in a result, and backward, which makes some
/// values again of stored ones, must find forward's.
static Value asStored(BodyBuilder &body, Value scalar, Type element) {
  if (!isa<FloatType>(element) || element.getIntOrFloatBitWidth() >= 32)
    return scalar;
  Value stored =
      arith::TruncFOp::create(body.builder, body.location, element, scalar);
  return arith::ExtFOp::create(body.builder, body.location, scalar.getType(),
                               stored);
}

/// What is read outside the group.
static void addOutputs(KernelGroup &group, BlockLowering &lowering,
                       ArrayRef<Operation *> ops, const Space &space) {
  for (Operation *op : ops) {
    KernelForm form = *getKernelForm(op);
    for (auto [value, own] : llvm::zip(op->getResults(), form.results)) {
      bool leaves =
          lowering.isBound(value) ||
          llvm::any_of(value.getUsers(), [&](Operation *user) {
            return !llvm::is_contained(ops, user) || readsStored(user);
          });
      if (leaves)
        group.addOutput(value, roleOf(form, value, own, space));
    }
  }
}

/// The kernel of the group itself.
static LogicalResult launchRows(BlockLowering &lowering,
                                ArrayRef<Operation *> ops, Space space) {
  KernelGroup group(lowering, space);
  bool onlyElements = true, reducesAll = false;
  llvm::DenseSet<Value> made;
  for (Operation *op : ops) {
    KernelForm form = *getKernelForm(op);
    reducesAll |= form.reducesAll;
    onlyElements &= form.flexible || form.reducesAll;
    for (auto [value, own] : llvm::zip(op->getOperands(), form.operands)) {
      Role role = roleOf(form, value, own, space);
      onlyElements &= role == Role::Full || role == Role::Scalar;
      if (!made.contains(value))
        group.addInput(value, role);
    }
    for (auto [value, own] : llvm::zip(op->getResults(), form.results)) {
      onlyElements &=
          roleOf(form, value, own, space) == Role::Full || form.reducesAll;
      made.insert(value);
    }
    if (needsColumn(op))
      group.needColumns(getColumnShard(op));
    if (needsHeads(op))
      group.needHeads(op);
  }
  addOutputs(group, lowering, ops, space);
  auto build = [&](BodyBuilder &body, DenseMap<Value, Value> &scalars) {
    for (Operation *op : ops) {
      KernelForm form = *getKernelForm(op);
      SmallVector<Value> operands;
      // One value may be what a row has once, and the keys of all rows.
      for (auto [operand, role] : llvm::zip(op->getOperands(), form.operands))
        operands.push_back(role == Role::FullPerRows
                               ? group.fullPerRows.lookup(operand)
                               : scalars.lookup(operand));
      for (auto [result, scalar] :
           llvm::zip(op->getResults(), buildBody(op, operands, body))) {
        const bool isRead =
            llvm::any_of(result.getUsers(), [&](Operation *user) {
              return llvm::is_contained(ops, user);
            });
        scalars[result] =
            isRead ? asStored(body, scalar, getElementTypeOrSelf(result))
                   : scalar;
      }
    }
  };
  rt::Skeleton skeleton = reducesAll     ? rt::Skeleton::reduce_all
                          : onlyElements ? rt::Skeleton::elementwise
                                         : rt::Skeleton::rowwise;
  return group.launch(nameOf(ops), skeleton, ops.back()->getLoc(),
                      labelOf(ops.back()), build);
}

/// The kernel of sums along columns that belongs to `op`, if it has any.
static LogicalResult launchColumns(BlockLowering &lowering, Operation *op) {
  using namespace transformer;
  Space space;
  SmallVector<Role> roles;
  unsigned firstResult = 0;
  if (auto sum = dyn_cast<SumLeadingOp>(op)) {
    space.columns = elementsOf(sum.getResult());
    space.rows = elementsOf(sum.getInput()) / space.columns;
    roles = {Role::Full};
  } else if (isa<RmsNormGradOp, LayerNormGradOp>(op)) {
    KernelForm form = *getKernelForm(op);
    space = {form.rows, form.columns, false};
    roles = form.operands;
    firstResult = 1;
  } else {
    return success();
  }
  KernelGroup group(lowering, space);
  SmallVector<bool> read(op->getNumOperands(), true);
  if (firstResult)
    read[2] = false; // the weight takes no part in its own gradient
  for (auto [i, value] : llvm::enumerate(op->getOperands()))
    if (read[i])
      group.addInput(value, roles[i]);
  for (Value value : op->getResults().drop_front(firstResult))
    group.addOutput(value, Role::PerColumn);
  auto build = [&](BodyBuilder &body, DenseMap<Value, Value> &scalars) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(scalars.lookup(operand));
    SmallVector<Value> sums = body.reduce(buildColumnTerms(op, operands, body));
    for (auto [result, sum] :
         llvm::zip(op->getResults().drop_front(firstResult), sums))
      scalars[result] = sum;
  };
  std::string name = (mnemonicOf(op) + (firstResult ? "_weight" : "")).str();
  return group.launch(name, rt::Skeleton::columnwise, op->getLoc(), labelOf(op),
                      build);
}

LogicalResult lowering::launchKernel(BlockLowering &lowering,
                                     ArrayRef<Operation *> ops) {
  if (std::optional<Space> space = spaceOf(ops))
    if (failed(launchRows(lowering, ops, *space)))
      return failure();
  for (Operation *op : ops)
    if (failed(launchColumns(lowering, op)))
      return failure();
  return success();
}
