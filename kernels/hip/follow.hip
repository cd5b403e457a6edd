// What kernels of steps that read some pages have in common: docs/attention.md.
//
// A row follows the policy where its position is at least `least`, and where it is the
// rank-th of its sequence's rows in the pass; rank -1: rows are of different sequences.
//
// pages = position/64 + 1 are the row's; known = max(pages-2, 1) are those before the newest
// two, or the first. The first and those from known on are read in any case.
//
// Scratch, with a place for each of max_pages pages: logs and foretold f32[T][heads][], the
// logarithms of what a query's scores in a page sum up to, as they were read or else
// estimated, and as the keys' means and variances alone foretell them; partials f32[T][heads][][2], of each
// PAGES_FORETOLD of the pages from 1 on the highest of their logs and the sum of what is above it in e^; weights
// f32[T][kv_heads][], the mean of a head's shares, NaN at first where a page has no finite
// summary; lists [T][kv_heads][], the pages 1 to known-1, those that are chosen first; plans
// of a head: how many of them there are, and what else the step does; done u32 and errors f32[2]
// of [T][kv_heads][ATTEND_PARTS]: blocks that have attended, and where all is read the squared errors
// without and with stand-ins. Histories
// f32[sequence][history_heads][4 + max_pages] are docs/attention.md's: steps since all was
// read, squared errors without and with stand-ins, the share that is left out; then the
// logarithm of seen over foretold for each page.
//
// Summaries of a page and head are FOLLOW_SUMMARY halves: the mean of keys, the variance of
// each number, the mean of values, each of FOLLOW_D with zeros behind KV_D, and one that is not
// 0 where a number is not finite; then the others are 0.
#include "functions.hip"
#include "rows.hip"

#define FOLLOW_D ((KV_D + 7) / 8 * 8)
#define FOLLOW_SUMMARY (3 * FOLLOW_D + 8)
#define FOLLOW_HEADER 4 // numbers of a history before those of pages
#define FOLLOW_RECENT 2 // newest pages
#define FOLLOW_NONE -3.4028234663852886e38f

struct follow_plan {
	i32 chosen; // pages of the list
	i32 whole;  // 1: the step reads all
	i32 stand;  // 1: means stand for what is not chosen
	f32 left;   // share of the weight that is estimated to be left out
};

// A page of a list, and which one of the cache it is.
struct alignas(8) follow_page {
	i32 page, physical;
};

#define FOLLOW_PARAMETERS int least_positions, int rank, int history_heads, f32 *histories, f32 *logs, f32 *foretold, f32 *partials, f32 *weights, follow_page *lists, follow_plan *plans, u32 *done, f32 *errors

NSTF_DEVICE bool follows(const i32* positions, const i32* owners, int row, int least_positions, int rank) {
	if (load_settled(positions + row) < least_positions) return false;
	if (rank < 0) return true;
	int before = 0;
	for (int i = 0; i < row; i++) before += load_settled(owners + i) == load_settled(owners + row);
	return before == rank;
}

NSTF_DEVICE int pages_of(int position) { return position / 64 + 1; }
NSTF_DEVICE int known_of(int position) { return position / 64 + 1 > FOLLOW_RECENT + 1 ? position / 64 + 1 - FOLLOW_RECENT : 1; }

#if defined(PAGES_FORETOLD)
// Places of a query's partials.
NSTF_DEVICE int partial_places(int max_pages) { return (max_pages + PAGES_FORETOLD - 1) / PAGES_FORETOLD; }
#endif

// The pages that are read in any case: the first, and those from known on.
NSTF_DEVICE int always_page(int i, int known) { return i == 0 ? 0 : known + i - 1; }

#if defined(PAGES_SPLITS)
// What a step adds up is of three kinds: pages that are read in every step, those in any case
// first; the rest where it reads all; and means that stand for the rest. How many of a kind there
// are, of listed pages, and how many blocks share them: each every PAGES_SPLITS-th page, or
// neighbouring means, which are small.
NSTF_DEVICE int follow_count(const follow_plan& plan, int kind, int listed, int always) {
	return kind == 0 ? always + plan.chosen : (kind == 1 ? plan.whole : plan.stand) != 0 ? listed - plan.chosen : 0;
}
#define MEANS_WAVES (ATTEND_BESIDE ? ATTEND_BESIDE : ATTEND_WAVES) // that add up means
NSTF_DEVICE int follow_means(int count) {
	const int each = (count + PAGES_SPLITS - 1) / PAGES_SPLITS;
	return each > 16 * MEANS_WAVES ? each : 16 * MEANS_WAVES;
}
NSTF_DEVICE int follow_blocks(int kind, int count) {
	return kind == 2 ? (count + follow_means(count) - 1) / follow_means(count) : count < PAGES_SPLITS ? count : PAGES_SPLITS;
}
#endif
