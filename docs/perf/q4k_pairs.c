// How fast tiles (AMX) multiply q4_k with 1 or 8 tokens where two neighbouring groups of 32 have one sum each: times alone,
// nothing is checked, and constants of the unpacking are not the format's. A product takes 16 rows by 64 codes, which are two
// groups, and each token twice, with zeros where the other group is: 16 rows by 8 tokens by 2 groups of integers.
//   clang -O3 -march=sapphirerapids -o pairs q4k_pairs.c && taskset -c 1 ./pairs
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
enum { RUNS = 8, ROWS = 2048 };
static uint8_t w[ROWS][RUNS][144];
static int8_t acts[RUNS][4][16][64];
static float d[RUNS][4][16], sum[RUNS][4][16];
static uint8_t codes[16][256] __attribute__((aligned(64)));
static float S[4][16][2] __attribute__((aligned(64))), M[4][16][2] __attribute__((aligned(64)));
static int32_t c[4][16][16] __attribute__((aligned(64)));
static float out[ROWS][16];
static inline void unpack(int n, int run) {
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
    __m128 a = _mm512_castps512_ps128(f), b = _mm512_extractf32x4_ps(f, 1), e = _mm512_extractf32x4_ps(f, 2), g = _mm512_extractf32x4_ps(f, 3);
    _mm_storel_pi((__m64 *)S[0][r], a); _mm_storeh_pi((__m64 *)S[1][r], a); _mm_storel_pi((__m64 *)S[2][r], b); _mm_storeh_pi((__m64 *)S[3][r], b);
    _mm_storel_pi((__m64 *)M[0][r], e); _mm_storeh_pi((__m64 *)M[1][r], e); _mm_storel_pi((__m64 *)M[2][r], g); _mm_storeh_pi((__m64 *)M[3][r], g);
  }
}
static inline __m512 pair(const float *p) { return _mm512_castpd_ps(_mm512_set1_pd(*(const double *)p)); }
static void multiply(int tokens, int only) {
  int cb = 8 * tokens;
  struct cfg t = {.palette = 1};
  for (int i = 0; i < 4; i++) { t.rows[i] = 16; t.colsb[i] = cb; }
  for (int i = 4; i < 6; i++) { t.rows[i] = 16; t.colsb[i] = 64; }
  for (int i = 6; i < 8; i++) { t.rows[i] = 16; t.colsb[i] = cb; }
  _tile_loadconfig(&t);
  for (int n = 0; n < ROWS; n += 16) {
    __m512 acc[16];
    for (int r = 0; r < 16; r++) acc[r] = _mm512_setzero_ps();
    for (int run = 0; run < RUNS; run++) {
      unpack(n, run);
      if (only) continue;
#define ONE(i, A, B) _tile_zero(i); _tile_loadd(A, codes[0] + 64 * i, 256); _tile_loadd(B, acts[run][i], cb); _tile_dpbusd(i, A, B); _tile_stored(i, c[i], cb);
      ONE(0, 4, 6) ONE(1, 5, 7) ONE(2, 4, 6) ONE(3, 5, 7)
      for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_loadu_ps(d[run][i]), b = _mm512_loadu_ps(sum[run][i]);
        if (tokens == 8) {
#pragma GCC unroll 16
          for (int r = 0; r < 16; r++) {
            __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c[i][r])), pair(S[i][r]));
            acc[r] = _mm512_fmadd_ps(f, a, acc[r]);
            acc[r] = _mm512_fnmadd_ps(b, pair(M[i][r]), acc[r]);
          }
        } else {
          a = pair(d[run][i]); b = pair(sum[run][i]);
          for (int h = 0; h < 2; h++) {
            __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512((int32_t *)c[i] + 16 * h)), _mm512_load_ps(S[i][8 * h]));
            acc[h] = _mm512_fmadd_ps(f, a, acc[h]);
            acc[h] = _mm512_fnmadd_ps(b, _mm512_load_ps(M[i][8 * h]), acc[h]);
          }
        }
      }
    }
    for (int r = 0; r < 16; r++) _mm512_storeu_ps(out[n + r], acc[r]);
  }
  _tile_release();
}
int main(void) {
  if (syscall(SYS_arch_prctl, 0x1023, 18)) { perror("no tiles"); return 1; }
  for (size_t i = 0; i < sizeof w; i++) ((uint8_t *)w)[i] = rand() & 0x3f;
  for (size_t i = 0; i < sizeof acts; i++) ((int8_t *)acts)[i] = rand();
  for (int k = 0; k < 3; k++) {
    int tokens = k == 0 ? 1 : 8, only = k == 2;
    double least = 1e9;
    for (int round = 0; round < 300; round++) {
      double t = now(); multiply(tokens, only); t = now() - t;
      if (t < least) least = t;
    }
    printf("%d tokens%s: %.1f ns for a run of 256 weights, %.2f each token\n", tokens, only ? ", unpacking alone" : "", 1e9 * least / (ROWS * RUNS), 1e9 * least / (ROWS * RUNS) / tokens);
  }
}
