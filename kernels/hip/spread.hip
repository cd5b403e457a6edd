// Where keys and values that have scales lie spread, for attention of prompts: pieces of sequences, in halves or
// with NSTF_EXACT in float32, keys and values far[page of the room][head][64][SPREAD_STRIDE], zeros behind KV_D.
//
// A piece is positions from to to-1 of the sequence of an owner, from and to at multiples of 64 but at the
// sequence's end; position p lies on page p/64 + base of the room. Pages that no row sees as codes (KV_FIRST)
// have no place there. An owner below 0 is none's.
#include "kv.hip"

#define SPREAD_PIECES 4
#define SPREAD_STRIDE ((KV_D + 7) / 8 * 8)
#if NSTF_EXACT
typedef f32 spread_element;
#else
typedef u16 spread_element;
#endif

struct spread_piece {
	int owner, from, to, base;
	// The first page that has a place.
#if KV_CODED
	NSTF_MEMBER int first() const { return from < 64 * KV_FIRST ? KV_FIRST : from / 64; }
#else
	NSTF_MEMBER int first() const { return from / 64; }
#endif
};

#define SPREAD_PIECE(i) int owner##i, int from##i, int to##i, int base##i
#define SPREAD_PARAMETERS SPREAD_PIECE(0), SPREAD_PIECE(1), SPREAD_PIECE(2), SPREAD_PIECE(3)
#define SPREAD_OF(i) {owner##i, from##i, to##i, base##i}
#define SPREAD_GIVEN {SPREAD_OF(0), SPREAD_OF(1), SPREAD_OF(2), SPREAD_OF(3)}

// The piece of an owner, or none.
NSTF_DEVICE spread_piece piece_of(const spread_piece (&pieces)[SPREAD_PIECES], int owner) {
	spread_piece p = {-1, 0, 0, 0};
#pragma unroll
	for (int i = 0; i < SPREAD_PIECES; i++)
		if (pieces[i].owner == owner) p = pieces[i];
	return p;
}
