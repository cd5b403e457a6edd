//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"

// Of each number of bits: four bytes for each lane, from that on in which the window of
// row 4r begins; for kind 3 the same, above 4 bits from the next; for kinds 0 to 3 the
// bits to shift by, less than none being to the right.

DATA tcqTable2<>+0(SB)/8, $0x0403020103020100
DATA tcqTable2<>+8(SB)/8, $0x0605040305040302
DATA tcqTable2<>+16(SB)/8, $0x0403020103020100
DATA tcqTable2<>+24(SB)/8, $0x0605040305040302
DATA tcqTable2<>+32(SB)/8, $0x0000000000000000
DATA tcqTable2<>+40(SB)/8, $0x0000000000000000
DATA tcqTable2<>+48(SB)/8, $0xfffffffefffffffe
DATA tcqTable2<>+56(SB)/8, $0xfffffffefffffffe
DATA tcqTable2<>+64(SB)/8, $0xfffffffcfffffffc
DATA tcqTable2<>+72(SB)/8, $0xfffffffcfffffffc
DATA tcqTable2<>+80(SB)/8, $0xfffffffafffffffa
DATA tcqTable2<>+88(SB)/8, $0xfffffffafffffffa
GLOBL tcqTable2<>(SB), RODATA|NOPTR, $96

DATA tcqTable3<>+0(SB)/8, $0x0403020103020100
DATA tcqTable3<>+8(SB)/8, $0x0706050406050403
DATA tcqTable3<>+16(SB)/8, $0x0403020103020100
DATA tcqTable3<>+24(SB)/8, $0x0706050406050403
DATA tcqTable3<>+32(SB)/8, $0xfffffffc00000000
DATA tcqTable3<>+40(SB)/8, $0xfffffffc00000000
DATA tcqTable3<>+48(SB)/8, $0xfffffff9fffffffd
DATA tcqTable3<>+56(SB)/8, $0xfffffff9fffffffd
DATA tcqTable3<>+64(SB)/8, $0xfffffff6fffffffa
DATA tcqTable3<>+72(SB)/8, $0xfffffff6fffffffa
DATA tcqTable3<>+80(SB)/8, $0xfffffff3fffffff7
DATA tcqTable3<>+88(SB)/8, $0xfffffff3fffffff7
GLOBL tcqTable3<>(SB), RODATA|NOPTR, $96

DATA tcqTable4<>+0(SB)/8, $0x0504030203020100
DATA tcqTable4<>+8(SB)/8, $0x0908070607060504
DATA tcqTable4<>+16(SB)/8, $0x0504030203020100
DATA tcqTable4<>+24(SB)/8, $0x0908070607060504
DATA tcqTable4<>+32(SB)/8, $0x0000000000000000
DATA tcqTable4<>+40(SB)/8, $0x0000000000000000
DATA tcqTable4<>+48(SB)/8, $0xfffffffcfffffffc
DATA tcqTable4<>+56(SB)/8, $0xfffffffcfffffffc
DATA tcqTable4<>+64(SB)/8, $0xfffffff8fffffff8
DATA tcqTable4<>+72(SB)/8, $0xfffffff8fffffff8
DATA tcqTable4<>+80(SB)/8, $0xfffffff4fffffff4
DATA tcqTable4<>+88(SB)/8, $0xfffffff4fffffff4
GLOBL tcqTable4<>(SB), RODATA|NOPTR, $96

DATA tcqTable5<>+0(SB)/8, $0x0504030203020100
DATA tcqTable5<>+8(SB)/8, $0x0a09080708070605
DATA tcqTable5<>+16(SB)/8, $0x0605040304030201
DATA tcqTable5<>+24(SB)/8, $0x0b0a090809080706
DATA tcqTable5<>+32(SB)/8, $0xfffffffc00000000
DATA tcqTable5<>+40(SB)/8, $0xfffffffc00000000
DATA tcqTable5<>+48(SB)/8, $0xfffffff7fffffffb
DATA tcqTable5<>+56(SB)/8, $0xfffffff7fffffffb
DATA tcqTable5<>+64(SB)/8, $0xfffffff2fffffff6
DATA tcqTable5<>+72(SB)/8, $0xfffffff2fffffff6
DATA tcqTable5<>+80(SB)/8, $0xfffffff5fffffff9
DATA tcqTable5<>+88(SB)/8, $0xfffffff5fffffff9
GLOBL tcqTable5<>(SB), RODATA|NOPTR, $96

DATA tcqTable6<>+0(SB)/8, $0x0605040303020100
DATA tcqTable6<>+8(SB)/8, $0x0c0b0a0909080706
DATA tcqTable6<>+16(SB)/8, $0x0706050404030201
DATA tcqTable6<>+24(SB)/8, $0x0d0c0b0a0a090807
DATA tcqTable6<>+32(SB)/8, $0x0000000000000000
DATA tcqTable6<>+40(SB)/8, $0x0000000000000000
DATA tcqTable6<>+48(SB)/8, $0xfffffffafffffffa
DATA tcqTable6<>+56(SB)/8, $0xfffffffafffffffa
DATA tcqTable6<>+64(SB)/8, $0xfffffff4fffffff4
DATA tcqTable6<>+72(SB)/8, $0xfffffff4fffffff4
DATA tcqTable6<>+80(SB)/8, $0xfffffff6fffffff6
DATA tcqTable6<>+88(SB)/8, $0xfffffff6fffffff6
GLOBL tcqTable6<>(SB), RODATA|NOPTR, $96

DATA tcqFours<>+0(SB)/8, $0x0101010100000000
DATA tcqFours<>+8(SB)/8, $0x0303030302020202
DATA tcqFours<>+16(SB)/8, $0x0505050504040404
DATA tcqFours<>+24(SB)/8, $0x0707070706060606
DATA tcqFours<>+32(SB)/8, $0x0909090908080808
DATA tcqFours<>+40(SB)/8, $0x0b0b0b0b0a0a0a0a
DATA tcqFours<>+48(SB)/8, $0x0d0d0d0d0c0c0c0c
DATA tcqFours<>+56(SB)/8, $0x0f0f0f0f0e0e0e0e
GLOBL tcqFours<>(SB), RODATA|NOPTR, $64

#define FOUR0 SXTL8H(3, 4)
#define FOUR1
#define FOUR2 SXTL28H(3, 4)
#define FOUR3
#define DOT(n, i, e, sum) \
	SADDLP8H(n, n) \
	MULE8H(4, e, n, n) \
	SADALP4S(n, sum)
#define LAST 1
#define PLACE3

#define BITS 2
#define TABLE tcqTable2<>

// func tcqProduct2NEON(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct2NEON(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#define BITS 3
#define TABLE tcqTable3<>

// func tcqProduct3NEON(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct3NEON(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#define BITS 4
#define TABLE tcqTable4<>

// func tcqProduct4NEON(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct4NEON(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#undef LAST
#undef PLACE3
#define LAST 2
#define PLACE3 VTBL V10.B16, [V0.B16], V2.B16

#define BITS 5
#define TABLE tcqTable5<>

// func tcqProduct5NEON(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct5NEON(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#define BITS 6
#define TABLE tcqTable6<>

// func tcqProduct6NEON(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct6NEON(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#undef LAST
#undef PLACE3

#undef FOUR0
#undef FOUR1
#undef FOUR2
#undef FOUR3
#undef DOT
#define FOUR0 VTBL V17.B16, [V3.B16], V4.B16
#define FOUR1 VTBL V18.B16, [V3.B16], V4.B16
#define FOUR2 VTBL V19.B16, [V3.B16], V4.B16
#define FOUR3 VTBL V20.B16, [V3.B16], V4.B16
#define DOT(n, i, e, sum) SDOTE4S(4, i, n, sum)
#define LAST 1
#define PLACE3

#define BITS 2
#define TABLE tcqTable2<>

// func tcqProduct2DotProd(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct2DotProd(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#define BITS 3
#define TABLE tcqTable3<>

// func tcqProduct3DotProd(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct3DotProd(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#define BITS 4
#define TABLE tcqTable4<>

// func tcqProduct4DotProd(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct4DotProd(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#undef LAST
#undef PLACE3
#define LAST 2
#define PLACE3 VTBL V10.B16, [V0.B16], V2.B16

#define BITS 5
#define TABLE tcqTable5<>

// func tcqProduct5DotProd(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct5DotProd(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#define BITS 6
#define TABLE tcqTable6<>

// func tcqProduct6DotProd(acc *[16]float32, tiles, record *byte, groups int, factor uint32)
TEXT ·tcqProduct6DotProd(SB), NOSPLIT, $0-36
#include "tcq_arm64.h"
#undef BITS
#undef TABLE

#undef LAST
#undef PLACE3
