//go:build !noasm

#include "textflag.h"
#include "neon_arm64.h"
#include "tile_arm64.h"

#define GROUP GROUP32
#define SUMS 288
#define MINIMUMS ((64+8)*128)

// func tile32x1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32x1DotProd(SB), NOSPLIT, $0-89
#define EACH EACH1
#include "tilerun_arm64.h"
#undef EACH

// func tile32x2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32x2DotProd(SB), NOSPLIT, $0-89
#define EACH EACH2
#include "tilerun_arm64.h"
#undef EACH

// func tile32x3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32x3DotProd(SB), NOSPLIT, $0-89
#define EACH EACH3
#include "tilerun_arm64.h"
#undef EACH

// func tile32x4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32x4DotProd(SB), NOSPLIT, $0-89
#define EACH EACH4
#include "tilerun_arm64.h"
#undef EACH

// func tile32x5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32x5DotProd(SB), NOSPLIT, $0-89
#define EACH EACH5
#include "tilerun_arm64.h"
#undef EACH

// func tile32x6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32x6DotProd(SB), NOSPLIT, $0-89
#define EACH EACH6
#include "tilerun_arm64.h"
#undef EACH

#undef GROUP
#undef SUMS
#undef MINIMUMS

#define GROUP GROUP32MIN
#define SUMS 288
#define MINIMUMS ((64+8)*128)

// func tile32Minx1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32Minx1DotProd(SB), NOSPLIT, $0-89
#define EACH EACH1
#include "tilerun_arm64.h"
#undef EACH

// func tile32Minx2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32Minx2DotProd(SB), NOSPLIT, $0-89
#define EACH EACH2
#include "tilerun_arm64.h"
#undef EACH

// func tile32Minx3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32Minx3DotProd(SB), NOSPLIT, $0-89
#define EACH EACH3
#include "tilerun_arm64.h"
#undef EACH

// func tile32Minx4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32Minx4DotProd(SB), NOSPLIT, $0-89
#define EACH EACH4
#include "tilerun_arm64.h"
#undef EACH

// func tile32Minx5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32Minx5DotProd(SB), NOSPLIT, $0-89
#define EACH EACH5
#include "tilerun_arm64.h"
#undef EACH

// func tile32Minx6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile32Minx6DotProd(SB), NOSPLIT, $0-89
#define EACH EACH6
#include "tilerun_arm64.h"
#undef EACH

#undef GROUP
#undef SUMS
#undef MINIMUMS

#define GROUP GROUP16
#define SUMS 320
#define MINIMUMS ((64+16)*128)

// func tile16x1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16x1DotProd(SB), NOSPLIT, $0-89
#define EACH EACH1
#include "tilerun_arm64.h"
#undef EACH

// func tile16x2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16x2DotProd(SB), NOSPLIT, $0-89
#define EACH EACH2
#include "tilerun_arm64.h"
#undef EACH

// func tile16x3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16x3DotProd(SB), NOSPLIT, $0-89
#define EACH EACH3
#include "tilerun_arm64.h"
#undef EACH

// func tile16x4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16x4DotProd(SB), NOSPLIT, $0-89
#define EACH EACH4
#include "tilerun_arm64.h"
#undef EACH

// func tile16x5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16x5DotProd(SB), NOSPLIT, $0-89
#define EACH EACH5
#include "tilerun_arm64.h"
#undef EACH

// func tile16x6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16x6DotProd(SB), NOSPLIT, $0-89
#define EACH EACH6
#include "tilerun_arm64.h"
#undef EACH

#undef GROUP
#undef SUMS
#undef MINIMUMS

#define GROUP GROUP16MIN
#define SUMS 320
#define MINIMUMS ((64+16)*128)

// func tile16Minx1DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16Minx1DotProd(SB), NOSPLIT, $0-89
#define EACH EACH1
#include "tilerun_arm64.h"
#undef EACH

// func tile16Minx2DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16Minx2DotProd(SB), NOSPLIT, $0-89
#define EACH EACH2
#include "tilerun_arm64.h"
#undef EACH

// func tile16Minx3DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16Minx3DotProd(SB), NOSPLIT, $0-89
#define EACH EACH3
#include "tilerun_arm64.h"
#undef EACH

// func tile16Minx4DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16Minx4DotProd(SB), NOSPLIT, $0-89
#define EACH EACH4
#include "tilerun_arm64.h"
#undef EACH

// func tile16Minx5DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16Minx5DotProd(SB), NOSPLIT, $0-89
#define EACH EACH5
#include "tilerun_arm64.h"
#undef EACH

// func tile16Minx6DotProd(m int, a, panel []byte, c []float32, ldc int, add bool)
TEXT ·tile16Minx6DotProd(SB), NOSPLIT, $0-89
#define EACH EACH6
#include "tilerun_arm64.h"
#undef EACH

#undef GROUP
#undef SUMS
#undef MINIMUMS
