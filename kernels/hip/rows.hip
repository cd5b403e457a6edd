// What kernels of attention are told of a step, however keys and values are stored.
#include "common.hip"

// The rows of a step: see Rows in kv.go.
#define ROWS_PARAMETERS const i32 *positions, const i32 *owners, const i32 *pages, int max_pages

// Scores of each head that count in the denominator alone.
#if ATTEND_SINKS
#define SINK_PARAMETER const f32 *sinks,
#else
#define SINK_PARAMETER
#endif
