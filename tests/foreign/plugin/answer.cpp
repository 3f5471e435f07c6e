// A dialect and a pass outside of MLIR's tree: `answer.value` becomes a constant. As plugin, or part of answer-opt.
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

namespace {

class ValueOp : public mlir::Op<ValueOp, mlir::OpTrait::ZeroOperands, mlir::OpTrait::OneResult> {
public:
  using Op::Op;
  static llvm::StringRef getOperationName() { return "answer.value"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }
};

class AnswerDialect : public mlir::Dialect {
public:
  explicit AnswerDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context, mlir::TypeID::get<AnswerDialect>()) {
    addOperations<ValueOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "answer"; }
};

class LowerAnswer : public mlir::PassWrapper<LowerAnswer, mlir::OperationPass<>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerAnswer)
  llvm::StringRef getArgument() const override { return "lower-answer"; }
  void getDependentDialects(mlir::DialectRegistry &registry) const override {
    registry.insert<mlir::arith::ArithDialect>();
  }
  void runOnOperation() override {
    getOperation()->walk([](ValueOp op) {
      mlir::IRRewriter rewriter(op->getContext());
      rewriter.setInsertionPoint(op);
      rewriter.replaceOpWithNewOp<mlir::arith::ConstantOp>(op, rewriter.getI32IntegerAttr(42));
    });
  }
};

void registerDialect(mlir::DialectRegistry *registry) { registry->insert<AnswerDialect>(); }
void registerPass() { mlir::PassRegistration<LowerAnswer>(); }

} // namespace

#ifdef ANSWER_OPT
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  registerDialect(&registry);
  registerPass();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "answer-opt\n", registry));
}
#else
extern "C" LLVM_ATTRIBUTE_WEAK mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "answer", LLVM_VERSION_STRING, registerDialect};
}
extern "C" LLVM_ATTRIBUTE_WEAK mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "answer", LLVM_VERSION_STRING, registerPass};
}
#endif
