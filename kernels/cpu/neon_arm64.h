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
#define FMIN4S(m, n, d) WORD $(0x4ea0f400 | (m)<<16 | (n)<<5 | (d)) // fmin v{d}.4s, v{n}.4s, v{m}.4s
#define FADDP4S(m, n, d) WORD $(0x6e20d400 | (m)<<16 | (n)<<5 | (d)) // faddp v{d}.4s, v{n}.4s, v{m}.4s
#define FCMEQ4S(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d)) // fcmeq v{d}.4s, v{n}.4s, v{m}.4s
#define FMAXV4S(n, d) WORD $(0x6e30f800 | (n)<<5 | (d)) // fmaxv s{d}, v{n}.4s
#define FABS4S(n, d) WORD $(0x4ea0f800 | (n)<<5 | (d)) // fabs v{d}.4s, v{n}.4s
#define FNEG4S(n, d) WORD $(0x6ea0f800 | (n)<<5 | (d)) // fneg v{d}.4s, v{n}.4s
#define FRINTN4S(n, d) WORD $(0x4e218800 | (n)<<5 | (d)) // frintn v{d}.4s, v{n}.4s
#define FCVTNS4S(n, d) WORD $(0x4e21a800 | (n)<<5 | (d)) // fcvtns v{d}.4s, v{n}.4s

// d += n * lane i of m
#define FMLAE4S(m, i, n, d) WORD $(0x4f801000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d)) // fmla v{d}.4s, v{n}.4s, v{m}.s[{i}]

// float16 to and from float32; 2 is the upper half of the shorter side
#define FCVTL(n, d) WORD $(0x0e217800 | (n)<<5 | (d)) // fcvtl v{d}.4s, v{n}.4h
#define FCVTL2(n, d) WORD $(0x4e217800 | (n)<<5 | (d)) // fcvtl2 v{d}.4s, v{n}.8h
#define FCVTN(n, d) WORD $(0x0e216800 | (n)<<5 | (d)) // fcvtn v{d}.4h, v{n}.4s
#define FCVTN2(n, d) WORD $(0x4e216800 | (n)<<5 | (d)) // fcvtn2 v{d}.8h, v{n}.4s

// integers
#define SHLL16(n, d) WORD $(0x2e613800 | (n)<<5 | (d)) // shll v{d}.4s, v{n}.4h, #16
#define SHLL2X16(n, d) WORD $(0x6e613800 | (n)<<5 | (d)) // shll2 v{d}.4s, v{n}.8h, #16
#define SHRN16(n, d) WORD $(0x0f108400 | (n)<<5 | (d)) // shrn v{d}.4h, v{n}.4s, #16
#define SHRN2X16(n, d) WORD $(0x4f108400 | (n)<<5 | (d)) // shrn2 v{d}.8h, v{n}.4s, #16
#define SSHR4S(s, n, d) WORD $(0x4f000400 | (64-(s))<<16 | (n)<<5 | (d)) // sshr v{d}.4s, v{n}.4s, #{s}
