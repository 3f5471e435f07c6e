/* What is used of LLVM's C API, declared here so that no headers of LLVM are needed. */
#pragma once
#include <cstddef>

extern "C" {
typedef struct LLVMOpaqueContext *LLVMContextRef;
typedef struct LLVMOpaqueModule *LLVMModuleRef;
typedef struct LLVMOpaqueType *LLVMTypeRef;
typedef struct LLVMOpaqueValue *LLVMValueRef;
typedef struct LLVMOpaqueBasicBlock *LLVMBasicBlockRef;
typedef struct LLVMOpaqueMemoryBuffer *LLVMMemoryBufferRef;
typedef struct LLVMOpaqueTargetData *LLVMTargetDataRef;

LLVMContextRef LLVMContextCreate(void);
LLVMMemoryBufferRef LLVMCreateMemoryBufferWithMemoryRangeCopy(const char *, size_t, const char *);
int LLVMParseBitcodeInContext2(LLVMContextRef, LLVMMemoryBufferRef, LLVMModuleRef *);
LLVMTargetDataRef LLVMGetModuleDataLayout(LLVMModuleRef);

LLVMValueRef LLVMGetFirstFunction(LLVMModuleRef);
LLVMValueRef LLVMGetNextFunction(LLVMValueRef);
LLVMValueRef LLVMGetFirstGlobal(LLVMModuleRef);
LLVMValueRef LLVMGetNextGlobal(LLVMValueRef);
const char *LLVMGetValueName2(LLVMValueRef, size_t *);
int LLVMIsDeclaration(LLVMValueRef);
LLVMTypeRef LLVMGlobalGetValueType(LLVMValueRef);
LLVMValueRef LLVMGetInitializer(LLVMValueRef);
unsigned LLVMGetAlignment(LLVMValueRef);
int LLVMGetVolatile(LLVMValueRef);
int LLVMGetOrdering(LLVMValueRef);
unsigned LLVMCountParams(LLVMValueRef);
LLVMValueRef LLVMGetParam(LLVMValueRef, unsigned);
LLVMValueRef LLVMAliasGetAliasee(LLVMValueRef);

LLVMBasicBlockRef LLVMGetFirstBasicBlock(LLVMValueRef);
LLVMBasicBlockRef LLVMGetNextBasicBlock(LLVMBasicBlockRef);
LLVMValueRef LLVMGetFirstInstruction(LLVMBasicBlockRef);
LLVMValueRef LLVMGetNextInstruction(LLVMValueRef);
LLVMBasicBlockRef LLVMGetInstructionParent(LLVMValueRef);
LLVMBasicBlockRef LLVMValueAsBasicBlock(LLVMValueRef);
int LLVMGetInstructionOpcode(LLVMValueRef);
int LLVMGetICmpPredicate(LLVMValueRef);
int LLVMGetFCmpPredicate(LLVMValueRef);
int LLVMGetAtomicRMWBinOp(LLVMValueRef);
unsigned LLVMGetNumSuccessors(LLVMValueRef);
LLVMBasicBlockRef LLVMGetSuccessor(LLVMValueRef, unsigned);
unsigned LLVMCountIncoming(LLVMValueRef);
LLVMValueRef LLVMGetIncomingValue(LLVMValueRef, unsigned);
LLVMBasicBlockRef LLVMGetIncomingBlock(LLVMValueRef, unsigned);
LLVMTypeRef LLVMGetAllocatedType(LLVMValueRef);
LLVMTypeRef LLVMGetGEPSourceElementType(LLVMValueRef);
LLVMValueRef LLVMGetCalledValue(LLVMValueRef);
unsigned LLVMGetNumArgOperands(LLVMValueRef);
unsigned LLVMGetNumIndices(LLVMValueRef);
const unsigned *LLVMGetIndices(LLVMValueRef);
int LLVMGetMaskValue(LLVMValueRef, unsigned);
unsigned LLVMGetNumMaskElements(LLVMValueRef);

int LLVMGetValueKind(LLVMValueRef);
LLVMTypeRef LLVMTypeOf(LLVMValueRef);
int LLVMGetNumOperands(LLVMValueRef);
LLVMValueRef LLVMGetOperand(LLVMValueRef, unsigned);
int LLVMGetConstOpcode(LLVMValueRef);
unsigned long long LLVMConstIntGetZExtValue(LLVMValueRef);
double LLVMConstRealGetDouble(LLVMValueRef, int *);
LLVMValueRef LLVMGetAggregateElement(LLVMValueRef, unsigned);
int LLVMIsNull(LLVMValueRef);
char *LLVMPrintValueToString(LLVMValueRef);

int LLVMGetTypeKind(LLVMTypeRef);
unsigned LLVMGetIntTypeWidth(LLVMTypeRef);
unsigned LLVMGetPointerAddressSpace(LLVMTypeRef);
unsigned LLVMCountStructElementTypes(LLVMTypeRef);
LLVMTypeRef LLVMStructGetTypeAtIndex(LLVMTypeRef, unsigned);
LLVMTypeRef LLVMGetElementType(LLVMTypeRef);
unsigned long long LLVMGetArrayLength2(LLVMTypeRef);
unsigned LLVMGetVectorSize(LLVMTypeRef);
unsigned long long LLVMABISizeOfType(LLVMTargetDataRef, LLVMTypeRef);
unsigned long long LLVMSizeOfTypeInBits(LLVMTargetDataRef, LLVMTypeRef);
unsigned long long LLVMStoreSizeOfType(LLVMTargetDataRef, LLVMTypeRef);
unsigned LLVMABIAlignmentOfType(LLVMTargetDataRef, LLVMTypeRef);
unsigned long long LLVMOffsetOfElement(LLVMTargetDataRef, LLVMTypeRef, unsigned);
}

/* The numbers of llvm-c/Core.h. */
enum {
  OP_RET = 1, OP_BR = 2, OP_SWITCH = 3, OP_UNREACHABLE = 7, OP_ADD = 8, OP_FADD, OP_SUB, OP_FSUB,
  OP_MUL, OP_FMUL, OP_UDIV, OP_SDIV, OP_FDIV, OP_UREM, OP_SREM, OP_FREM, OP_SHL, OP_LSHR, OP_ASHR,
  OP_AND, OP_OR, OP_XOR, OP_ALLOCA, OP_LOAD, OP_STORE, OP_GEP, OP_TRUNC, OP_ZEXT, OP_SEXT,
  OP_FPTOUI, OP_FPTOSI, OP_UITOFP, OP_SITOFP, OP_FPTRUNC, OP_FPEXT, OP_PTRTOINT, OP_INTTOPTR,
  OP_BITCAST, OP_ICMP, OP_FCMP, OP_PHI, OP_CALL, OP_SELECT, OP_EXTRACT = 50, OP_INSERT,
  OP_SHUFFLE, OP_EXTRACTVALUE, OP_INSERTVALUE, OP_FENCE, OP_CMPXCHG, OP_RMW, OP_ADDRSPACECAST = 60,
  OP_FNEG = 66, OP_FREEZE = 68,
};
enum {
  TYPE_VOID = 0, TYPE_HALF, TYPE_FLOAT, TYPE_DOUBLE, TYPE_INTEGER = 8, TYPE_STRUCT = 10,
  TYPE_ARRAY, TYPE_POINTER, TYPE_VECTOR, TYPE_METADATA, TYPE_BFLOAT = 18,
};
enum {
  VALUE_ARGUMENT = 0, VALUE_FUNCTION = 5, VALUE_ALIAS = 6, VALUE_GLOBAL = 8, VALUE_EXPRESSION = 10,
  VALUE_UNDEF = 14, VALUE_INT = 18, VALUE_FP = 19, VALUE_METADATA = 22, VALUE_ASM = 23,
  VALUE_INSTRUCTION = 24, VALUE_POISON = 25,
};
