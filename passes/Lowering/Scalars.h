//===- Scalars.h - arithmetic of kernel bodies ------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_SCALARS_H
#define HEDDLE_PASSES_LOWERING_SCALARS_H

#include "passes/Lowering/KernelBodies.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace heddle::lowering {

/// Infix arithmetic on scalars, so that bodies read as formulas.
struct Scalar {
  BodyBuilder *body;
  mlir::Value value;
  operator mlir::Value() const { return value; }
};

template <class OpType>
Scalar make(Scalar a, mlir::Value b) {
  return {a.body,
          OpType::create(a.body->builder, a.body->location, a.value, b)};
}
inline Scalar operator+(Scalar a, Scalar b) {
  return make<mlir::arith::AddFOp>(a, b);
}
inline Scalar operator-(Scalar a, Scalar b) {
  return make<mlir::arith::SubFOp>(a, b);
}
inline Scalar operator*(Scalar a, Scalar b) {
  return make<mlir::arith::MulFOp>(a, b);
}
inline Scalar operator/(Scalar a, Scalar b) {
  return make<mlir::arith::DivFOp>(a, b);
}
inline Scalar operator*(double a, Scalar b) {
  return Scalar{b.body, b.body->constant(a)} * b;
}
inline Scalar operator+(Scalar a, double b) {
  return a + Scalar{a.body, a.body->constant(b)};
}
inline Scalar operator-(double a, Scalar b) {
  return Scalar{b.body, b.body->constant(a)} - b;
}
inline Scalar operator/(double a, Scalar b) {
  return Scalar{b.body, b.body->constant(a)} / b;
}

template <class OpType>
Scalar unary(Scalar a) {
  return {a.body, OpType::create(a.body->builder, a.body->location, a.value)};
}
inline Scalar sqrt(Scalar a) { return unary<mlir::math::SqrtOp>(a); }
inline Scalar exp(Scalar a) { return unary<mlir::math::ExpOp>(a); }
inline Scalar log(Scalar a) { return unary<mlir::math::LogOp>(a); }
inline Scalar tanh(Scalar a) { return unary<mlir::math::TanhOp>(a); }
inline Scalar erf(Scalar a) { return unary<mlir::math::ErfOp>(a); }
inline Scalar negate(Scalar a) { return unary<mlir::arith::NegFOp>(a); }

inline Scalar select(mlir::Value condition, Scalar a, Scalar b) {
  return {a.body,
          mlir::arith::SelectOp::create(a.body->builder, a.body->location,
                                        condition, a.value, b.value)};
}
inline mlir::Value compare(BodyBuilder &body,
                           mlir::arith::CmpIPredicate predicate, mlir::Value a,
                           mlir::Value b) {
  return mlir::arith::CmpIOp::create(body.builder, body.location, predicate, a,
                                     b);
}
inline mlir::Value compare(mlir::arith::CmpFPredicate predicate, Scalar a,
                           double b) {
  return mlir::arith::CmpFOp::create(a.body->builder, a.body->location,
                                     predicate, a.value, a.body->constant(b));
}

/// `a` where the condition holds, or everywhere without one.
inline Scalar where(mlir::Value condition, Scalar a, double otherwise) {
  return condition ? select(condition, a, {a.body, a.body->constant(otherwise)})
                   : a;
}

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_SCALARS_H
