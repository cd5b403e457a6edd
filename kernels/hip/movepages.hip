// Pages of keys and values that change places, with their summaries and in all layers at once: between the card
// and the host's memory, which the device maps, or from one page to another.
//
//	for move (from, to, ways), plane: x = plane[from], y = plane[to]
//	                                  where ways & 1: plane[to] = x; where ways & 2: plane[from] = y
//
// planes move_plane[gridDim.z]; page p of one begins at card + p * bytes, from page `pages` on at host + p * bytes,
// and has a multiple of 16 bytes. moves i32[gridDim.y][4], the fourth is nothing; no page is in two of them.
//
// Grid: x: blocks that share a page; y: moves; z: planes. 256 threads, 16 bytes at a time. No LDS. Deterministic.
// Bound: the link, both ways at once. The launch neither begins early nor lets the next one: that reads what was
// there before this one's end.
#include "common.hip"

struct move_plane {
	u8 *card, *host;
	i64 bytes;
};

NSTF_KERNEL void __launch_bounds__(256) nstf_move_pages(const move_plane* planes, const i32* moves, int pages) {
	wait_for_inputs();
	u8 *const card = planes[blockIdx.z].card, *const host = planes[blockIdx.z].host;
	const i64 bytes = planes[blockIdx.z].bytes;
	const i32* move = moves + 4 * blockIdx.y;
	const int from = move[0], to = move[1], ways = move[2];
	Words4 *a = (Words4*)((from < pages ? card : host) + from * bytes), *b = (Words4*)((to < pages ? card : host) + to * bytes);
	const i64 n = bytes / 16, step = gridDim.x * 256, first = blockIdx.x * 256 + threadIdx.x;
	if (ways == 3) {
#pragma unroll 4
		for (i64 i = first; i < n; i += step) {
			const Words4 x = a[i], y = b[i];
			a[i] = y, b[i] = x;
		}
		return;
	}
	Words4 *out = ways == 1 ? b : a;
	const Words4 *in = ways == 1 ? a : b;
#pragma unroll 4
	for (i64 i = first; i < n; i += step) out[i] = in[i];
}
