// Vector instructions that Go's assembler lacks, as words.
//
// Operands are register numbers in the order of Go's assembler: sources last to
// first, then the destination (FSUB4S(m, n, d) is d = n - m). Behind each word
// stands what a disassembler has to say for it, {d} being d's number: the test in
// internal/gen/neon reads this file and asks one.

// float32
#define FADD4S(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d)) // fadd v{d}.4s, v{n}.4s, v{m}.4s
#define FSUB4S(m, n, d) WORD $(0x4ea0d400 | (m)<<16 | (n)<<5 | (d)) // fsub v{d}.4s, v{n}.4s, v{m}.4s
#define FMUL4S(m, n, d) WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d)) // fmul v{d}.4s, v{n}.4s, v{m}.4s
#define FDIV4S(m, n, d) WORD $(0x6e20fc00 | (m)<<16 | (n)<<5 | (d)) // fdiv v{d}.4s, v{n}.4s, v{m}.4s
#define FMAX4S(m, n, d) WORD $(0x4e20f400 | (m)<<16 | (n)<<5 | (d)) // fmax v{d}.4s, v{n}.4s, v{m}.4s
#define FMAXNM4S(m, n, d) WORD $(0x4e20c400 | (m)<<16 | (n)<<5 | (d)) // fmaxnm v{d}.4s, v{n}.4s, v{m}.4s
#define FMIN4S(m, n, d) WORD $(0x4ea0f400 | (m)<<16 | (n)<<5 | (d)) // fmin v{d}.4s, v{n}.4s, v{m}.4s
#define FADDP4S(m, n, d) WORD $(0x6e20d400 | (m)<<16 | (n)<<5 | (d)) // faddp v{d}.4s, v{n}.4s, v{m}.4s
#define FMLA4S(m, n, d) WORD $(0x4e20cc00 | (m)<<16 | (n)<<5 | (d)) // fmla v{d}.4s, v{n}.4s, v{m}.4s
#define FMLS4S(m, n, d) WORD $(0x4ea0cc00 | (m)<<16 | (n)<<5 | (d)) // fmls v{d}.4s, v{n}.4s, v{m}.4s
#define FCMEQ4S(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d)) // fcmeq v{d}.4s, v{n}.4s, v{m}.4s
#define FMAXNMV4S(n, d) WORD $(0x6e30c800 | (n)<<5 | (d)) // fmaxnmv s{d}, v{n}.4s
#define FABS4S(n, d) WORD $(0x4ea0f800 | (n)<<5 | (d)) // fabs v{d}.4s, v{n}.4s
#define FNEG4S(n, d) WORD $(0x6ea0f800 | (n)<<5 | (d)) // fneg v{d}.4s, v{n}.4s
#define FRINTN4S(n, d) WORD $(0x4e218800 | (n)<<5 | (d)) // frintn v{d}.4s, v{n}.4s
#define FCVTNS4S(n, d) WORD $(0x4e21a800 | (n)<<5 | (d)) // fcvtns v{d}.4s, v{n}.4s

#define SCVTF4S(n, d) WORD $(0x4e21d800 | (n)<<5 | (d)) // scvtf v{d}.4s, v{n}.4s
#define UCVTF4S(n, d) WORD $(0x6e21d800 | (n)<<5 | (d)) // ucvtf v{d}.4s, v{n}.4s

// d = or += n * lane i of m
#define FMULE4S(m, i, n, d) WORD $(0x4f809000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d)) // fmul v{d}.4s, v{n}.4s, v{m}.s[{i}]
#define FMLAE4S(m, i, n, d) WORD $(0x4f801000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d)) // fmla v{d}.4s, v{n}.4s, v{m}.s[{i}]

// d -= n * lane i of m
#define FMLSE4S(m, i, n, d) WORD $(0x4f805000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d)) // fmls v{d}.4s, v{n}.4s, v{m}.s[{i}]

// float64, two of them, and from the lower and upper float32
#define FADD2D(m, n, d) WORD $(0x4e60d400 | (m)<<16 | (n)<<5 | (d)) // fadd v{d}.2d, v{n}.2d, v{m}.2d
#define FSUB2D(m, n, d) WORD $(0x4ee0d400 | (m)<<16 | (n)<<5 | (d)) // fsub v{d}.2d, v{n}.2d, v{m}.2d
#define FADDP2D(m, n, d) WORD $(0x6e60d400 | (m)<<16 | (n)<<5 | (d)) // faddp v{d}.2d, v{n}.2d, v{m}.2d
#define FMLA2D(m, n, d) WORD $(0x4e60cc00 | (m)<<16 | (n)<<5 | (d)) // fmla v{d}.2d, v{n}.2d, v{m}.2d
#define FCVTL2D(n, d) WORD $(0x0e617800 | (n)<<5 | (d)) // fcvtl v{d}.2d, v{n}.2s
#define FCVTL22D(n, d) WORD $(0x4e617800 | (n)<<5 | (d)) // fcvtl2 v{d}.2d, v{n}.4s

// float16 to and from float32; 2 is the upper half of the shorter side
#define FCVTL(n, d) WORD $(0x0e217800 | (n)<<5 | (d)) // fcvtl v{d}.4s, v{n}.4h
#define FCVTL2(n, d) WORD $(0x4e217800 | (n)<<5 | (d)) // fcvtl2 v{d}.4s, v{n}.8h
#define FCVTN(n, d) WORD $(0x0e216800 | (n)<<5 | (d)) // fcvtn v{d}.4h, v{n}.4s
#define FCVTN2(n, d) WORD $(0x4e216800 | (n)<<5 | (d)) // fcvtn2 v{d}.8h, v{n}.4s

// integers
#define SUB16B(m, n, d) WORD $(0x6e208400 | (m)<<16 | (n)<<5 | (d)) // sub v{d}.16b, v{n}.16b, v{m}.16b
#define ZERO(d) WORD $(0x6f00e400 | (d)) // movi v{d}.2d, #0x0
#define SXTL8H(n, d) WORD $(0x0f08a400 | (n)<<5 | (d)) // sxtl v{d}.8h, v{n}.8b
#define SXTL28H(n, d) WORD $(0x4f08a400 | (n)<<5 | (d)) // sxtl2 v{d}.8h, v{n}.16b
#define SXTL4S(n, d) WORD $(0x0f10a400 | (n)<<5 | (d)) // sxtl v{d}.4s, v{n}.4h
#define SXTL24S(n, d) WORD $(0x4f10a400 | (n)<<5 | (d)) // sxtl2 v{d}.4s, v{n}.8h
#define UXTL8H(n, d) WORD $(0x2f08a400 | (n)<<5 | (d)) // uxtl v{d}.8h, v{n}.8b
#define UXTL28H(n, d) WORD $(0x6f08a400 | (n)<<5 | (d)) // uxtl2 v{d}.8h, v{n}.16b
#define UXTL4S(n, d) WORD $(0x2f10a400 | (n)<<5 | (d)) // uxtl v{d}.4s, v{n}.4h
#define UXTL24S(n, d) WORD $(0x6f10a400 | (n)<<5 | (d)) // uxtl2 v{d}.4s, v{n}.8h
#define XTN4H(n, d) WORD $(0x0e612800 | (n)<<5 | (d)) // xtn v{d}.4h, v{n}.4s
#define XTN28H(n, d) WORD $(0x4e612800 | (n)<<5 | (d)) // xtn2 v{d}.8h, v{n}.4s
#define XTN8B(n, d) WORD $(0x0e212800 | (n)<<5 | (d)) // xtn v{d}.8b, v{n}.8h
#define XTN216B(n, d) WORD $(0x4e212800 | (n)<<5 | (d)) // xtn2 v{d}.16b, v{n}.8h
#define UMAXV4S(n, d) WORD $(0x6eb0a800 | (n)<<5 | (d)) // umaxv s{d}, v{n}.4s
#define UMINV4S(n, d) WORD $(0x6eb1a800 | (n)<<5 | (d)) // uminv s{d}, v{n}.4s
#define SHLL16(n, d) WORD $(0x2e613800 | (n)<<5 | (d)) // shll v{d}.4s, v{n}.4h, #16
#define SHLL2X16(n, d) WORD $(0x6e613800 | (n)<<5 | (d)) // shll2 v{d}.4s, v{n}.8h, #16
#define SHRN16(n, d) WORD $(0x0f108400 | (n)<<5 | (d)) // shrn v{d}.4h, v{n}.4s, #16
#define SHRN2X16(n, d) WORD $(0x4f108400 | (n)<<5 | (d)) // shrn2 v{d}.8h, v{n}.4s, #16
#define MUL4S(m, n, d) WORD $(0x4ea09c00 | (m)<<16 | (n)<<5 | (d)) // mul v{d}.4s, v{n}.4s, v{m}.4s
#define USHL4S(m, n, d) WORD $(0x6ea04400 | (m)<<16 | (n)<<5 | (d)) // ushl v{d}.4s, v{n}.4s, v{m}.4s
#define USHL16B(m, n, d) WORD $(0x6e204400 | (m)<<16 | (n)<<5 | (d)) // ushl v{d}.16b, v{n}.16b, v{m}.16b
#define SSHR4S(s, n, d) WORD $(0x4f000400 | (64-(s))<<16 | (n)<<5 | (d)) // sshr v{d}.4s, v{n}.4s, #{s}

// 16 bits by lane i of m, which is 15 at most, added to 32
#define SMLALE4S(m, i, n, d) WORD $(0x0f402000 | ((i)>>2)<<11 | (((i)>>1)&1)<<21 | ((i)&1)<<20 | (m)<<16 | (n)<<5 | (d)) // smlal v{d}.4s, v{n}.4h, v{m}.h[{i}]
#define SMLALE24S(m, i, n, d) WORD $(0x4f402000 | ((i)>>2)<<11 | (((i)>>1)&1)<<21 | ((i)&1)<<20 | (m)<<16 | (n)<<5 | (d)) // smlal2 v{d}.4s, v{n}.8h, v{m}.h[{i}]

// bytes by bytes: 8 products to 16 bits, of the lower halves and the upper; pairs
// of sums to twice the width; and, at LevelDotProd, four products to each of 4 sums
#define SMULL8H(m, n, d) WORD $(0x0e20c000 | (m)<<16 | (n)<<5 | (d)) // smull v{d}.8h, v{n}.8b, v{m}.8b
#define SMLAL28H(m, n, d) WORD $(0x4e208000 | (m)<<16 | (n)<<5 | (d)) // smlal2 v{d}.8h, v{n}.16b, v{m}.16b
#define SADDLP8H(n, d) WORD $(0x4e202800 | (n)<<5 | (d)) // saddlp v{d}.8h, v{n}.16b
#define SADDLP4S(n, d) WORD $(0x4e602800 | (n)<<5 | (d)) // saddlp v{d}.4s, v{n}.8h
#define SADALP4S(n, d) WORD $(0x4e606800 | (n)<<5 | (d)) // sadalp v{d}.4s, v{n}.8h
#define SDOT4S(m, n, d) WORD $(0x4e809400 | (m)<<16 | (n)<<5 | (d)) // sdot v{d}.4s, v{n}.16b, v{m}.16b

// the same by the four bytes of lane i of m
#define SDOTE4S(m, i, n, d) WORD $(0x4f80e000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d)) // sdot v{d}.4s, v{n}.16b, v{m}.4b[{i}]

// 16 bits by lane i of m, which is below 16
#define MULE8H(m, i, n, d) WORD $(0x4f408000 | ((i)>>2)<<11 | (((i)>>1)&1)<<21 | ((i)&1)<<20 | (m)<<16 | (n)<<5 | (d)) // mul v{d}.8h, v{n}.8h, v{m}.h[{i}]

// one 16-bit lane, the address then stepped by a register
#define LD1H(i, n, m, d) WORD $(0x0dc04000 | ((i)>>2)<<30 | (((i)>>1)&1)<<12 | ((i)&1)<<11 | (m)<<16 | (n)<<5 | (d)) // ld1 {v{d}.h}[{i}], [x{n}], x{m}

// two registers, t and then u, to 32 bytes: the g-th from an address
#define STPQ(g, u, n, t) WORD $(0xad000000 | (g)<<16 | (u)<<10 | (n)<<5 | (t)) // stp q{t}, q{u}, [x{n}, #{32g}]

// 16 bytes: the i-th from an address
#define LDRQ(i, n, t) WORD $(0x3dc00000 | (i)<<10 | (n)<<5 | (t)) // ldr q{t}, [x{n}, #{16i}]
