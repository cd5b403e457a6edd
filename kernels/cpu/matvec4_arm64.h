// The kernel for 4 tokens; see integer_arm64.h.

#define ZEROS ZERO(16); ZERO(17); ZERO(18); ZERO(19); ZERO(20); ZERO(21); ZERO(22); ZERO(23)
#define START32 FIRST32(R19, 0); FIRST32(R20, 1); FIRST32(R21, 2); FIRST32(R22, 3)
#define MINUS32 LESS32(R19, 0); LESS32(R20, 1); LESS32(R21, 2); LESS32(R22, 3)
#define MINUS16 LESS16(R19, 0); LESS16(R20, 1); LESS16(R21, 2); LESS16(R22, 3)
#define GROUP32(c0, c1, g) TOKEN32(R19, 0, c0, c1, g); TOKEN32(R20, 1, c0, c1, g); TOKEN32(R21, 2, c0, c1, g); TOKEN32(R22, 3, c0, c1, g)
#define GROUP16(c0, c1, g) TOKEN16(R19, 0, c0, c1, g); TOKEN16(R20, 1, c0, c1, g); TOKEN16(R21, 2, c0, c1, g); TOKEN16(R22, 3, c0, c1, g)
#define STEP ADD R8, R19; ADD R8, R20; ADD R8, R21; ADD R8, R22
#define TOTALS TOTAL(0, F16); TOTAL(1, F18); TOTAL(2, F20); TOTAL(3, F22)

#include "matvec_arm64.h"

#undef ZEROS
#undef START32
#undef MINUS32
#undef MINUS16
#undef GROUP32
#undef GROUP16
#undef STEP
#undef TOTALS
