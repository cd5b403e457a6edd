// How fast tiles (AMX) multiply q4_k with 8 or 16 tokens: times alone, nothing is checked, and constants of the unpacking are
// not the format's. Each run of 256 weights has LANES sums of integers for a row and a token; each is made a float and
// multiplied with S of the row and d of the token. 16 are the sums of one row in kernels/cpu, 8 would be one for each group.
//   clang -O3 -march=sapphirerapids -DLANES=16 -o tiles q4k_tiles.c && taskset -c 1 ./tiles
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
struct cfg { uint8_t palette, row, r[14]; uint16_t colsb[16]; uint8_t rows[16]; } __attribute__((aligned(64)));
#ifndef LANES
#define LANES 16
#endif
enum { RUNS = 8, ROWS = 2048, CODES = 256 / LANES }; // of 256 weights: K = 2048
static uint8_t w[ROWS][RUNS][144];
static int8_t acts[RUNS][LANES][CODES / 4][16][4];          // [run][lane][k/4][token][4]: B of each lane's tile
static float d16[RUNS][16][16], sum[RUNS][8][16]; // [run][lane][token], [run][group][token]
static uint8_t codes[16][256] __attribute__((aligned(64)));
static float S[16][16] __attribute__((aligned(64))), M[16][8];
static int32_t c[4][16][16] __attribute__((aligned(64)));
static float out[ROWS][16];

// Sixteen rows' run: codes in the order of groups, scales twice each, minimums.
static void unpack(int n, int run) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int r = 0; r < 16; r++) {
    const uint8_t *p = w[n + r][run];
    for (int i = 0; i < 4; i++) {
      __m256i x = _mm256_loadu_si256((const __m256i *)(p + 16 + 32 * i));
      __m512i y = _mm512_inserti64x4(_mm512_castsi256_si512(x), _mm256_srli_epi16(x, 4), 1);
      _mm512_store_si512(&codes[r][64 * i], _mm512_and_si512(y, low));
    }
    const __m512i place = _mm512_broadcast_i32x4(_mm_set1_epi8(4));
    __m512i h = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)), s = _mm512_shuffle_epi8(h, place);
    s = _mm512_srlv_epi32(_mm512_ternarylogic_epi32(s, _mm512_srli_epi32(s, 10), low, 0xe4), low);
    __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(s), _mm512_cvtph_ps(_mm256_broadcastsi128_si256(_mm512_castsi512_si128(h))));
    _mm512_store_ps(S[r], f);
    _mm256_storeu_ps(M[r], _mm512_extractf32x8_ps(f, 1));
  }
}

static void multiply(int tokens) {
  struct cfg t = {.palette = 1};
  for (int i = 0; i < 4; i++) { // C 0-3, A 4, 5: 16 rows of 16 codes; B 6, 7: 4 rows of 4*tokens
    t.rows[i] = 16; t.colsb[i] = 4 * tokens;
  }
  for (int i = 4; i < 6; i++) { t.rows[i] = 16; t.colsb[i] = CODES; }
  for (int i = 6; i < 8; i++) { t.rows[i] = CODES / 4; t.colsb[i] = 4 * tokens; }
  _tile_loadconfig(&t);
  static float acc[16][16][16] __attribute__((aligned(64))); // [row][lane or pair][token]
  for (int n = 0; n < ROWS; n += 16) {
    memset(acc, 0, sizeof acc);
    for (int run = 0; run < RUNS; run++) {
      unpack(n, run);
      for (int lane = 0; lane < LANES; lane += 4) {
#define ONE(i, A, B) _tile_zero(i); _tile_loadd(A, codes[0] + CODES * (lane + i), 256); _tile_loadd(B, acts[run][lane + i], 4 * tokens); \
        _tile_dpbusd(i, A, B); _tile_stored(i, c[i], 4 * tokens);
        ONE(0, 4, 6) ONE(1, 5, 7) ONE(2, 4, 6) ONE(3, 5, 7)
        for (int i = 0; i < 4; i++) {
          if (tokens == 16) {
            __m512 dd = _mm512_loadu_ps(d16[run][lane + i]);
            for (int r = 0; r < 16; r++) {
              __m512 f = _mm512_mul_ps(dd, _mm512_set1_ps(S[r][lane + i]));
              __m512 *a = (__m512 *)acc[r][lane + i];
              *a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[i][r])), f, *a);
            }
          } else { // two rows in a register
            __m512 dd = _mm512_broadcast_f32x8(_mm256_loadu_ps(d16[run][lane + i]));
            const int32_t *ci = (const int32_t *)c[i];
            for (int r = 0; r < 16; r += 2) {
              __m512 s2 = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_set1_ps(S[r][lane + i])), _mm256_set1_ps(S[r + 1][lane + i]), 1);
              __m512 *a = (__m512 *)acc[r / 2][lane + i];
              *a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(ci + 8 * r)), _mm512_mul_ps(dd, s2), *a);
            }
          }
        }
      }
      for (int g = 0; g < 8; g++) // minimums
        for (int r = 0; r < 16; r++) {
          __m512 *a = (__m512 *)acc[r][15]; // (a place of its own in a real one)
          if (tokens == 16 || r % 2 == 0) *a = _mm512_fnmadd_ps(_mm512_loadu_ps(sum[run][g]), _mm512_set1_ps(M[r][g]), *a);
        }
    }
    for (int r = 0; r < 16; r++) {
      __m512 s = _mm512_setzero_ps();
      for (int l = 0; l < 16 && (tokens == 16 || r < 8); l++) s = _mm512_add_ps(s, _mm512_load_ps(acc[r][l]));
      _mm512_storeu_ps(out[n + r], s);
    }
  }
  _tile_release();
}

int main(void) {
  if (syscall(SYS_arch_prctl, 0x1023, 18)) { perror("no tiles"); return 1; }
  for (size_t i = 0; i < sizeof w; i++) ((uint8_t *)w)[i] = rand() & 0x3f;
  for (size_t i = 0; i < sizeof acts; i++) ((int8_t *)acts)[i] = rand();
  for (int tokens = 8; tokens <= 16; tokens += 8) {
    double least = 1e9;
    for (int round = 0; round < 200; round++) {
      double t = now();
      multiply(tokens);
      t = now() - t;
      if (t < least) least = t;
    }
    printf("%d tokens: %.1f ns for a run of 256 weights, %.2f each token\n", tokens, 1e9 * least / (ROWS * RUNS), 1e9 * least / (ROWS * RUNS) / tokens);
  }
}
