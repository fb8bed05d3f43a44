//===- StepBuilder.cpp - writes @step -------------------------------------===//

#include "passes/Autodiff/StepBuilder.h"

using namespace mlir;

namespace heddle::autodiff {

using namespace transformer;

static StringRef nameOfArgument(func::FuncOp function, unsigned index) {
  auto name = function.getArgAttrOfType<StringAttr>(index, kArgumentName);
  return name ? name.getValue() : "";
}

/// Position of the argument of that name, or the number of arguments.
static unsigned findArgument(func::FuncOp function, StringRef name) {
  unsigned index = 0;
  while (index < function.getNumArguments() &&
         nameOfArgument(function, index) != name)
    ++index;
  return index;
}

static bool takes(func::FuncOp function, StringRef name) {
  return findArgument(function, name) < function.getNumArguments();
}

static std::string sumOf(StringRef parameter) {
  return parameter.str() + ".gradient_sum";
}
static std::string gradientOf(StringRef parameter) {
  return parameter.str() + ".gradient";
}
static std::string firstMomentOf(StringRef parameter) {
  return parameter.str() + ".adam_m";
}
static std::string secondMomentOf(StringRef parameter) {
  return parameter.str() + ".adam_v";
}

//===----------------------------------------------------------------------===//
// Single ops
//===----------------------------------------------------------------------===//

void StepBuilder::in(StringRef phase) {
  location = NameLoc::get(builder.getStringAttr(phase),
                          NameLoc::get(builder.getStringAttr("step")));
}

template <class OpType, class... Args>
OpType StepBuilder::create(ArrayRef<std::string> given, Args &&...args) {
  auto op = OpType::create(builder, location, std::forward<Args>(args)...);
  SmallVector<std::string> unique;
  for (const std::string &name : given)
    unique.push_back(names.unique(name));
  if (!unique.empty())
    setNames(op, unique);
  return op;
}

Value StepBuilder::load(StringRef state, Value layer, StringRef name) {
  return create<LoadOp>({name.str()}, stateOf(state).getTensorType(), state,
                        layer);
}

void StepBuilder::store(Value value, StringRef state, Value layer) {
  StoreOp::create(builder, location, value, state, layer);
}

Value StepBuilder::get(Value stack, Value index, StringRef name) {
  return create<GetOp>({name.str()},
                       cast<StackType>(stack.getType()).getElementType(), stack,
                       index);
}

FailureOr<LoopOp> StepBuilder::loop(StringRef over, int64_t count,
                                    bool reversed, ValueRange inits,
                                    Body body) {
  OpBuilder::InsertionGuard guard(builder);
  // The body first: the types of the results are known only behind it.
  Region region;
  Block &inside = region.emplaceBlock();
  Value index = inside.addArgument(builder.getIndexType(), location);
  for (Value init : inits)
    inside.addArgument(init.getType(), location);
  OpBuilder::InsertPoint outside = builder.saveInsertionPoint();
  builder.setInsertionPointToStart(&inside);
  FailureOr<Yields> yields = body(index, inside.getArguments().drop_front());
  if (failed(yields))
    return failure();
  YieldOp::create(builder, location, yields->carried, yields->collected);
  SmallVector<Type> types(inits.getTypes());
  for (Value value : yields->collected)
    types.push_back(StackType::get(builder.getContext(), count,
                                   cast<RankedTensorType>(value.getType())));
  builder.restoreInsertionPoint(outside);
  SmallVector<std::string> resultNames = yields->carriedNames;
  for (const std::string &name : yields->collectedNames)
    resultNames.push_back("all_" + name);
  auto made = create<LoopOp>(resultNames, types, over, count, reversed, inits,
                             /*from=*/IntegerAttr(), /*limit=*/Value());
  made.getBody().takeBody(region);
  return made;
}

FailureOr<Value> StepBuilder::forEachInstance(
    StateOp state, Value init, StringRef name,
    llvm::function_ref<Value(Value layer, Value carried)> body) {
  if (!state.getLayers())
    return body(Value(), init);
  SmallVector<Value> inits;
  if (init)
    inits.push_back(init);
  auto made = loop("layer", state.getCount(), /*reversed=*/false, inits,
                   [&](Value index, ValueRange carriedIn) -> FailureOr<Yields> {
                     Value next =
                         body(index, init ? carriedIn.front() : Value());
                     Yields yields;
                     if (next) {
                       yields.carried.push_back(next);
                       yields.carriedNames.push_back(name.str());
                     }
                     return yields;
                   });
  if (failed(made))
    return failure();
  return init ? made->getResult(0) : Value();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

FailureOr<Value> StepBuilder::argumentOf(func::FuncOp function, unsigned index,
                                         const Scope &scope, const Scope &saved,
                                         Value layer) {
  StringRef name = nameOfArgument(function, index);
  Type type = function.getArgumentTypes()[index];
  Value value;
  if (auto state =
          function.getArgAttrOfType<FlatSymbolRefAttr>(index, kStateName)) {
    StateOp target = stateOf(state.getValue());
    if (!target)
      return function.emitError() << "@" << function.getName() << " takes "
                                  << state << ", which is no state";
    if (target.getLayers() && !layer)
      return function.emitError()
             << "@" << function.getName() << " takes " << state
             << " of a layer, but is called once per micro-batch";
    value = load(state.getValue(), target.getLayers() ? layer : Value(), name);
  } else {
    value = function.getArgAttr(index, kSavedName) ? saved.lookup(name)
                                                   : scope.lookup(name);
  }
  if (!value)
    return function.emitError() << "@" << function.getName() << " takes '"
                                << name << "', which the step does not have";
  if (value.getType() != type)
    return function.emitError()
           << "@" << function.getName() << " takes '" << name << "' as " << type
           << ", but the step has " << value.getType();
  return value;
}

FailureOr<StepBuilder::Outcome> StepBuilder::call(func::FuncOp function,
                                                  const Scope &scope,
                                                  const Scope &saved,
                                                  Value layer) {
  SmallVector<Value> arguments;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    FailureOr<Value> value = argumentOf(function, i, scope, saved, layer);
    if (failed(value))
      return failure();
    arguments.push_back(*value);
  }
  SmallVector<std::string> resultNames;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    auto name = function.getResultAttrOfType<StringAttr>(i, kArgumentName);
    resultNames.push_back(name ? name.str() : "result");
  }
  auto made = create<func::CallOp>(resultNames, function, arguments);
  Outcome outcome;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    Value value = made.getResult(i);
    if (auto name = function.getResultAttrOfType<StringAttr>(i, kSavedName))
      outcome.saved.emplace_back(name.getValue(), value);
    else if (auto state = function.getResultAttrOfType<FlatSymbolRefAttr>(
                 i, kGradientName))
      outcome.gradients.emplace_back(state, value);
    else
      outcome.values[resultNames[i]] = value;
  }
  return outcome;
}

FailureOr<SmallVector<Value>> StepBuilder::pick(func::FuncOp function,
                                                const Outcome &outcome,
                                                ArrayRef<std::string> wanted) {
  SmallVector<Value> values;
  for (const std::string &name : wanted) {
    values.push_back(outcome.values.lookup(name));
    if (!values.back())
      return function.emitError()
             << "@" << function.getName() << " returns no '" << name << "'";
  }
  return values;
}

void StepBuilder::accumulate(const Outcome &outcome, Value layer) {
  for (auto [state, value] : outcome.gradients)
    AccumulateOp::create(builder, location, value, sumOf(state.getValue()),
                         stateOf(state.getValue()).getLayers() ? layer
                                                               : Value());
}

//===----------------------------------------------------------------------===//
// States and inputs
//===----------------------------------------------------------------------===//

void StepBuilder::createStates() {
  for (StateOp parameter : parameters) {
    builder.setInsertionPointAfter(parameter);
    auto of = FlatSymbolRefAttr::get(parameter);
    auto create = [&](const std::string &name, StateKind kind,
                      FlatSymbolRefAttr storage) {
      StateOp::create(builder, parameter.getLoc(), name, kind,
                      parameter.getLayersAttr(), parameter.getTensorType(), of,
                      storage);
    };
    StringRef name = parameter.getSymName();
    create(sumOf(name), StateKind::GradientSum, {});
    create(gradientOf(name), StateKind::Gradient,
           FlatSymbolRefAttr::get(builder.getContext(), sumOf(name)));
    if (optimizer.isAdamW) {
      create(firstMomentOf(name), StateKind::AdamM, {});
      create(secondMomentOf(name), StateKind::AdamV, {});
    }
  }
}

LogicalResult StepBuilder::createFunction() {
  unsigned at = findArgument(embedding, "tokens");
  auto tokens =
      at < embedding.getNumArguments()
          ? dyn_cast<RankedTensorType>(embedding.getArgumentTypes()[at])
          : RankedTensorType();
  if (!tokens)
    return embedding.emitError() << "@embedding takes no tensor 'tokens'";
  Type stack = StackType::get(builder.getContext(), microBatches, tokens);
  Type scalar = RankedTensorType::get({}, builder.getF32Type());
  SmallVector<std::pair<StringRef, Type>> arguments = {
      {"tokens", stack},
      {"labels", stack},
      {"positions", stack},
      {"documents", stack},
      {"learning_rate", scalar}};
  if (optimizer.isAdamW) {
    arguments.emplace_back("bias_correction1", scalar);
    arguments.emplace_back("bias_correction2", scalar);
  }
  if (takes(head, kLossScale))
    arguments.emplace_back(kLossScale, scalar);
  auto seed = RankedTensorType::get({}, builder.getI64Type());
  if (readsInput(kTokenNumbers))
    arguments.emplace_back(kTokenNumbers, stack);
  if (takes(embedding, kDropoutSeed))
    arguments.emplace_back(kDropoutSeed, seed);
  if (takes(block, kDropoutSeed))
    arguments.emplace_back(kLayerDropoutSeeds,
                           StackType::get(builder.getContext(), layers, seed));
  builder.setInsertionPointToEnd(module.getBody());
  in("inputs");
  SmallVector<Type> types;
  for (auto [name, type] : arguments)
    types.push_back(type);
  step = func::FuncOp::create(
      builder, location, "step",
      builder.getFunctionType(
          types,
          {scalar, RankedTensorType::get({}, builder.getI64Type()), scalar}));
  builder.setInsertionPointToStart(step.addEntryBlock());
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    step.setArgAttr(i, kArgumentName, builder.getStringAttr(argument.first));
    inputs[argument.first] = step.getArgument(i);
    names.add(argument.first);
  }
  unsigned index = 0;
  for (StringRef name : {"loss", "count", "gradient_norm"})
    step.setResultAttr(index++, kArgumentName, builder.getStringAttr(name));
  return success();
}

//===----------------------------------------------------------------------===//
// Micro-batches
//===----------------------------------------------------------------------===//

FailureOr<Value> StepBuilder::countLabels() {
  in("count");
  auto type = RankedTensorType::get({}, builder.getI64Type());
  Value zero = create<ZerosOp>({"no_count"}, type);
  auto made =
      loop("micro_batch", microBatches, false, zero,
           [&](Value index, ValueRange sum) -> FailureOr<Yields> {
             Value labels = get(inputs["labels"], index, "labels");
             Value counted = create<CountLabelsOp>({"counted"}, type, labels);
             Value next = create<AddOp>({"count_sum"}, sum.front(), counted);
             return Yields{{next}, {}, {"count"}, {}};
           });
  if (failed(made))
    return failure();
  return made->getResult(0);
}

FailureOr<Value> StepBuilder::runMicroBatches(Value count) {
  in("gradients");
  for (StateOp parameter : parameters)
    ZeroOp::create(builder, location, sumOf(parameter.getSymName()));
  in("loss");
  Value zero = create<ZerosOp>({"no_loss"},
                               RankedTensorType::get({}, builder.getF32Type()));
  auto made = loop("micro_batch", microBatches, false, zero,
                   [&](Value index, ValueRange sum) -> FailureOr<Yields> {
                     FailureOr<Value> loss = runMicroBatch(index, count);
                     if (failed(loss))
                       return failure();
                     in("loss");
                     Value next =
                         create<AddOp>({"loss_sum"}, sum.front(), *loss);
                     return Yields{{next}, {}, {"loss"}, {}};
                   });
  if (failed(made))
    return failure();
  return made->getResult(0);
}

bool StepBuilder::readsInput(StringRef name) {
  return llvm::any_of(
      ArrayRef{embedding, embeddingBackward, block, blockBackward, head},
      [&](func::FuncOp function) { return takes(function, name); });
}

void StepBuilder::setLayerInputs(Scope &scope, Value layer) {
  if (Value seeds = inputs.lookup(kLayerDropoutSeeds))
    scope[kDropoutSeed] = get(seeds, layer, kDropoutSeed);
}

FailureOr<Value> StepBuilder::runMicroBatch(Value index, Value count) {
  Scope scope, stacks;
  in("inputs");
  for (StringRef name :
       {StringRef("tokens"), StringRef("labels"), StringRef("positions"),
        StringRef("documents"), StringRef(kTokenNumbers)})
    if (readsInput(name))
      scope[name] = get(inputs[name], index, name);
  if (Value seed = inputs.lookup(kDropoutSeed))
    scope[kDropoutSeed] = seed;
  if (Value scale = inputs.lookup(kLossScale))
    scope[kLossScale] = scale;
  scope["count"] = count;
  in("forward");
  FailureOr<Outcome> embedded = call(embedding, scope, {}, {});
  if (failed(embedded))
    return failure();
  Scope embeddingSaved;
  for (auto [name, value] : embedded->saved)
    embeddingSaved[name] = value;
  for (const std::string &name : carried)
    scope[name] = embedded->values[name];
  if (failed(runForward(scope, stacks)))
    return failure();
  in("head");
  FailureOr<Outcome> ended = call(head, scope, {}, {});
  if (failed(ended))
    return failure();
  SmallVector<std::string> wanted = {"loss"};
  for (const std::string &name : carried)
    wanted.push_back("d_" + name);
  auto values = pick(head, *ended, wanted);
  if (failed(values))
    return failure();
  accumulate(*ended, {});
  for (auto [name, value] : llvm::zip(wanted, *values))
    scope[name] = value;
  if (failed(runBackward(scope, stacks)))
    return failure();
  FailureOr<Outcome> begun = call(embeddingBackward, scope, embeddingSaved, {});
  if (failed(begun))
    return failure();
  accumulate(*begun, {});
  return values->front();
}

/// Whether backward reads the carried value itself, which forward does not
/// return: it is then collected in front of the call.
static bool readsArgument(func::FuncOp backward, StringRef name) {
  unsigned index = findArgument(backward, name);
  return index < backward.getNumArguments() &&
         !backward.getArgAttr(index, kSavedName);
}

LogicalResult StepBuilder::runForward(Scope &scope, Scope &stacks) {
  SmallVector<Value> inits;
  for (const std::string &name : carried)
    inits.push_back(scope[name]);
  SmallVector<std::string> collected;
  auto made = loop("layer", layers, false, inits,
                   [&](Value layer, ValueRange now) -> FailureOr<Yields> {
                     Yields yields;
                     Scope inside = scope;
                     setLayerInputs(inside, layer);
                     for (auto [name, value] : llvm::zip(carried, now)) {
                       inside[name] = value;
                       if (!readsArgument(blockBackward, name))
                         continue;
                       collected.push_back(name);
                       yields.collected.push_back(value);
                     }
                     FailureOr<Outcome> outcome =
                         call(block, inside, {}, layer);
                     if (failed(outcome))
                       return failure();
                     for (const std::string &name : carried)
                       yields.carried.push_back(outcome->values[name]);
                     for (auto [name, value] : outcome->saved) {
                       collected.push_back(name.str());
                       yields.collected.push_back(value);
                     }
                     yields.carriedNames = carried;
                     yields.collectedNames = collected;
                     return yields;
                   });
  if (failed(made))
    return failure();
  for (auto [name, value] : llvm::zip(carried, made->getCarriedResults()))
    scope[name] = value;
  for (auto [name, value] : llvm::zip(collected, made->getStacks()))
    stacks[name] = value;
  return success();
}

LogicalResult StepBuilder::runBackward(Scope &scope, const Scope &stacks) {
  in("backward");
  SmallVector<Value> inits;
  SmallVector<std::string> gradients;
  for (const std::string &name : carried) {
    gradients.push_back("d_" + name);
    inits.push_back(scope[gradients.back()]);
  }
  auto made =
      loop("layer", layers, /*reversed=*/true, inits,
           [&](Value layer, ValueRange now) -> FailureOr<Yields> {
             Scope inside = scope, saved;
             setLayerInputs(inside, layer);
             for (auto [name, value] : llvm::zip(gradients, now))
               inside[name] = value;
             for (unsigned i = 0; i < blockBackward.getNumArguments(); ++i) {
               StringRef name = nameOfArgument(blockBackward, i);
               if (Value stack = stacks.lookup(name))
                 inside[name] = saved[name] = get(stack, layer, name);
             }
             FailureOr<Outcome> outcome =
                 call(blockBackward, inside, saved, layer);
             if (failed(outcome))
               return failure();
             accumulate(*outcome, layer);
             auto next = pick(blockBackward, *outcome, gradients);
             if (failed(next))
               return failure();
             return Yields{*next, {}, gradients, {}};
           });
  if (failed(made))
    return failure();
  for (auto [name, value] : llvm::zip(gradients, made->getResults()))
    scope[name] = value;
  return success();
}

//===----------------------------------------------------------------------===//
// After the last micro-batch
//===----------------------------------------------------------------------===//

LogicalResult StepBuilder::moveGradients() {
  auto move = [&](StateOp state, Value layer) {
    StringRef parameter = state.getSymName();
    in(gradientOf(parameter));
    store(
        load(sumOf(parameter), layer, shortNames[parameter] + "_gradient_sum"),
        gradientOf(parameter), layer);
  };
  for (StateOp state : parameters)
    if (!state.getLayers())
      move(state, Value());
  // All of a layer beside each other: their reductions can be one.
  return success(
      succeeded(loop("layer", layers, /*reversed=*/false, {},
                     [&](Value layer, ValueRange) -> FailureOr<Yields> {
                       for (StateOp state : parameters)
                         if (state.getLayers())
                           move(state, layer);
                       return Yields();
                     })));
}

FailureOr<std::pair<Value, Value>> StepBuilder::clip() {
  in("gradient_norm");
  auto wide = RankedTensorType::get({}, builder.getF64Type());
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  Value sum = create<ZerosOp>({"no_squares"}, wide);
  for (StateOp state : parameters) {
    auto next = forEachInstance(
        state, sum, "squares", [&](Value layer, Value before) -> Value {
          Value gradient = load(gradientOf(state.getSymName()), layer,
                                shortNames[state.getSymName()] + "_gradient");
          Value squares = create<SumSquaresOp>({"square"}, wide, gradient);
          return create<AddOp>({"squares_sum"}, before, squares);
        });
    if (failed(next))
      return failure();
    sum = *next;
  }
  FloatAttr limit;
  if (optimizer.clipNorm)
    limit = builder.getF64FloatAttr(*optimizer.clipNorm);
  auto made =
      create<ClipFactorOp>({"gradient_norm", "clip_factor"}, scalar, scalar,
                           sum, inputs.lookup(kLossScale), limit);
  return std::pair<Value, Value>(made.getNorm(), made.getFactor());
}

void StepBuilder::updateOne(StateOp state, Value layer, Value factor) {
  StringRef parameter = state.getSymName();
  std::string name = shortNames[parameter];
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  FloatAttr decay = number(state.getDecay() ? optimizer.weightDecay : 0);
  Type type = state.getTensorType();
  Value before = load(parameter, layer, name);
  Value gradient = load(gradientOf(parameter), layer, name + "_gradient");
  Value rate = inputs["learning_rate"];
  if (!optimizer.isAdamW) {
    Value next = create<SgdOp>({name + "_next"}, type, before, gradient, rate,
                               factor, decay);
    store(next, parameter, layer);
    return;
  }
  Value m = load(firstMomentOf(parameter), layer, name + "_m");
  Value v = load(secondMomentOf(parameter), layer, name + "_v");
  auto next = create<AdamWOp>(
      {name + "_next", name + "_m_next", name + "_v_next"}, type, type, type,
      before, gradient, m, v, rate, inputs["bias_correction1"],
      inputs["bias_correction2"], factor, number(optimizer.beta1),
      number(optimizer.beta2), number(optimizer.epsilon), decay);
  store(next.getNewParameter(), parameter, layer);
  store(next.getNewM(), firstMomentOf(parameter), layer);
  store(next.getNewV(), secondMomentOf(parameter), layer);
}

LogicalResult StepBuilder::update(Value factor) {
  for (StateOp state : parameters) {
    in(state.getSymName());
    auto done = forEachInstance(state, {}, "", [&](Value layer, Value) {
      updateOne(state, layer, factor);
      return Value();
    });
    if (failed(done))
      return failure();
  }
  return success();
}

LogicalResult StepBuilder::build() {
  createStates();
  if (failed(createFunction()))
    return failure();
  FailureOr<Value> count = countLabels();
  if (failed(count))
    return failure();
  FailureOr<Value> loss = runMicroBatches(*count);
  if (failed(loss) || failed(moveGradients()))
    return failure();
  auto clipped = clip();
  if (failed(clipped) || failed(update(clipped->second)))
    return failure();
  in("results");
  func::ReturnOp::create(builder, location,
                         ValueRange{*loss, *count, clipped->first});
  return success();
}

} // namespace heddle::autodiff
