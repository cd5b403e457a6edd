// The kernel for 1 token; see integer_arm64.h.

#define ZEROS ZERO(16); ZERO(17)
#define START32 FIRST32(R19, 0)
#define MINUS32 LESS32(R19, 0)
#define MINUS16 LESS16(R19, 0)
#define GROUP32(c0, c1, g) TOKEN32(R19, 0, c0, c1, g)
#define GROUP16(c0, c1, g) TOKEN16(R19, 0, c0, c1, g)
#define STEP ADD R8, R19
#define TOTALS TOTAL(0, F16)

#include "matvec_arm64.h"

#undef ZEROS
#undef START32
#undef MINUS32
#undef MINUS16
#undef GROUP32
#undef GROUP16
#undef STEP
#undef TOTALS
