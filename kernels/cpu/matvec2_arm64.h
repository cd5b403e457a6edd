// The kernel for 2 tokens; see integer_arm64.h.

#define ZEROS ZERO(16); ZERO(17); ZERO(18); ZERO(19)
#define START32 FIRST32(R19, 0); FIRST32(R20, 1)
#define MINUS32 LESS32(R19, 0); LESS32(R20, 1)
#define MINUS16 LESS16(R19, 0); LESS16(R20, 1)
#define GROUP32(c0, c1, g) TOKEN32(R19, 0, c0, c1, g); TOKEN32(R20, 1, c0, c1, g)
#define GROUP16(c0, c1, g) TOKEN16(R19, 0, c0, c1, g); TOKEN16(R20, 1, c0, c1, g)
#define STEP ADD R8, R19; ADD R8, R20
#define TOTALS TOTAL(0, F16); TOTAL(1, F18)

#include "matvec_arm64.h"

#undef ZEROS
#undef START32
#undef MINUS32
#undef MINUS16
#undef GROUP32
#undef GROUP16
#undef STEP
#undef TOTALS
