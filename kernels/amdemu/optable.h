// How instructions are written down: one line each, name and meaning.
//
// In a line of the table a, b and c are the sources of one lane; what the
// expression gives is written to the lane's destination. OP takes statements
// instead, for whatever does not fit. m is the table being filled.
#pragma once
#include "lanes.h"

#define OP(name, ...) m[name] = [](Wave& w, const Instruction& I) { __VA_ARGS__; }

// A function of the lane.
#define LANE(...) [=, &w, &I](int l) { return __VA_ARGS__; }

#define READ1(reader) auto* A = reader(w, I, 0)
#define READ2(reader) auto *A = reader(w, I, 0), *B = reader(w, I, 1)
#define READ3(reader) auto *A = reader(w, I, 0), *B = reader(w, I, 1), *C = reader(w, I, 2)
#define BODY(type, writer, ...) writer(w, I, [=, &w, &I](int l) { return (type)(__VA_ARGS__); })

// 32 bits to 32 bits.
#define U32_1(name, ...) OP(name, READ1(source); write(w, I, [=, &w, &I](int l) { u32 a = A[l]; return (u32)(__VA_ARGS__); }))
#define U32_2(name, ...) OP(name, READ2(source); write(w, I, [=, &w, &I](int l) { u32 a = A[l], b = B[l]; return (u32)(__VA_ARGS__); }))
#define U32_3(name, ...) OP(name, READ3(source); write(w, I, [=, &w, &I](int l) { u32 a = A[l], b = B[l], c = C[l]; return (u32)(__VA_ARGS__); }))

// float32 to float32; in F32_ACC c is the destination's old value.
#define F32_1(name, ...) OP(name, READ1(source_f32); write_f32(w, I, [=, &w, &I](int l) { float a = as_f32(A[l]); return (float)(__VA_ARGS__); }))
#define F32_2(name, ...) OP(name, READ2(source_f32); write_f32(w, I, [=, &w, &I](int l) { float a = as_f32(A[l]), b = as_f32(B[l]); return (float)(__VA_ARGS__); }))
#define F32_3(name, ...) OP(name, READ3(source_f32); write_f32(w, I, [=, &w, &I](int l) { float a = as_f32(A[l]), b = as_f32(B[l]), c = as_f32(C[l]); return (float)(__VA_ARGS__); }))
#define F32_ACC(name, ...) OP(name, READ2(source_f32); auto* C = vgpr(w, I.op[0].idx); write_f32(w, I, [=, &w, &I](int l) { float a = as_f32(A[l]), b = as_f32(B[l]), c = as_f32(C[l]); return (float)(__VA_ARGS__); }))
#define F32_TO_U32(name, ...) OP(name, READ1(source_f32); write(w, I, [=, &w, &I](int l) { float a = as_f32(A[l]); return (u32)(__VA_ARGS__); }))
#define U32_TO_F32(name, ...) OP(name, READ1(source); write_f32(w, I, [=, &w, &I](int l) { u32 a = A[l]; return (float)(__VA_ARGS__); }))

// float64.
#define F64_1(name, ...) OP(name, auto* A = source_64(w, I, 0, true); write_f64(w, I, [=, &w, &I](int l) { double a = as_f64(A[l]); return (double)(__VA_ARGS__); }))
#define F64_2(name, ...) OP(name, auto *A = source_64(w, I, 0, true), *B = source_64(w, I, 1, true); write_f64(w, I, [=, &w, &I](int l) { double a = as_f64(A[l]), b = as_f64(B[l]); return (double)(__VA_ARGS__); }))
#define F64_3(name, ...) OP(name, auto *A = source_64(w, I, 0, true), *B = source_64(w, I, 1, true), *C = source_64(w, I, 2, true); write_f64(w, I, [=, &w, &I](int l) { double a = as_f64(A[l]), b = as_f64(B[l]), c = as_f64(C[l]); return (double)(__VA_ARGS__); }))

// float16, computed in float32 and rounded once; 1 and 2 in vectors of the host.
#define F16_1(name, ...) OP(name, alignas(64) float x[64]; alignas(64) u32 r[64]; f16_lanes_to_f32(source_16(w, I, 0), 0, x, w.width); \
	for (int l = 0; l < w.width; l++) { float a = x[l]; x[l] = (float)(__VA_ARGS__); } \
	f32_lanes_to_f16(x, r, w.width); const u32* R = r; write_f16(w, I, 1, LANE((u16)R[l])))
#define F16_2(name, ...) OP(name, alignas(64) float x[64]; alignas(64) float y[64]; alignas(64) u32 r[64]; \
	f16_lanes_to_f32(source_16(w, I, 0), 0, x, w.width); f16_lanes_to_f32(source_16(w, I, 1), 0, y, w.width); \
	for (int l = 0; l < w.width; l++) { float a = x[l], b = y[l]; x[l] = (float)(__VA_ARGS__); } \
	f32_lanes_to_f16(x, r, w.width); const u32* R = r; write_f16(w, I, 2, LANE((u16)R[l])))
#define F16_3(name, ...) OP(name, READ3(source_16); write_f16(w, I, 3, [=, &w, &I](int l) { float a = f16_to_f32(A[l]), b = f16_to_f32(B[l]), c = f16_to_f32(C[l]); return f32_to_f16((float)(__VA_ARGS__)); }))

// 16-bit integers.
#define U16_1(name, ...) OP(name, READ1(source_16); write_16(w, I, 1, [=, &w, &I](int l) { u16 a = A[l]; return (u16)(__VA_ARGS__); }))
#define U16_2(name, ...) OP(name, READ2(source_16); write_16(w, I, 2, [=, &w, &I](int l) { u16 a = A[l], b = B[l]; return (u16)(__VA_ARGS__); }))
#define U16_3(name, ...) OP(name, READ3(source_16); write_16(w, I, 3, [=, &w, &I](int l) { u16 a = A[l], b = B[l], c = C[l]; return (u16)(__VA_ARGS__); }, true))

// Pairs of 16-bit integers, each half by the expression; clamp is the modifier.
#define PK_U16_2(name, ...) OP(name, auto *A = source_packed(w, I, 0, false), *B = source_packed(w, I, 1, false); bool clamp = I.clamp; \
	auto f = [clamp](u16 a, u16 b) -> u32 { (void)clamp; return (u16)(__VA_ARGS__); }; \
	write(w, I, LANE(f(A[l], B[l]) | f(A[l] >> 16, B[l] >> 16) << 16)))
#define PK_U16_3(name, ...) OP(name, auto *A = source_packed(w, I, 0, false), *B = source_packed(w, I, 1, false), *C = source_packed(w, I, 2, false); bool clamp = I.clamp; \
	auto f = [clamp](u16 a, u16 b, u16 c) -> u32 { (void)clamp; return (u16)(__VA_ARGS__); }; \
	write(w, I, LANE(f(A[l], B[l], C[l]) | f(A[l] >> 16, B[l] >> 16, C[l] >> 16) << 16)))

// Families of instructions; each fills its part of the table.
void add_moves(OpTable& m);
void add_compares(OpTable& m);
void add_integers(OpTable& m);
void add_floats(OpTable& m);
void add_divisions(OpTable& m);
void add_halves(OpTable& m);
void add_conversions(OpTable& m);
void add_packed(OpTable& m);
void add_dots(OpTable& m);
void add_scalars(OpTable& m);
void add_scalar_floats(OpTable& m);
void add_control(OpTable& m);
void add_scalar_memory(OpTable& m);
void add_memory(OpTable& m);
void add_lds(OpTable& m);
void add_atomics(OpTable& m);
void add_wmma(OpTable& m);

// Every v_mfma instruction: it is not in the table, its name says all.
void mfma(Wave& w, const Instruction& I);

// Gives an instruction another name; the old one must be there.
void alias(OpTable& m, const char* name, const char* of);
